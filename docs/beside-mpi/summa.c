/* SUMMA, as crates/hydrant/examples/summa.rs: MPI_Bcast on split communicators. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double a(long row, long column) { return (double)((row * 7 + column * 3) % 11) - 5.0; }
static double b(long row, long column) { return (double)((row * 5 + column * 2) % 13) - 6.0; }

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static double *block(long rows, long columns, double (*element)(long, long), long top, long left) {
    double *block = calloc(rows * columns, sizeof *block);
    if (!block)
        fail("no memory");
    for (long row = 0; element && row < rows; row++)
        for (long column = 0; column < columns; column++)
            block[row * columns + column] = element(top + row, left + column);
    return block;
}

static void multiply(double *c, const double *left, const double *right, long rows, long terms, long columns) {
    for (long row = 0; row < rows; row++)
        for (long term = 0; term < terms; term++)
            for (long column = 0; column < columns; column++)
                c[row * columns + column] += left[row * terms + term] * right[term * columns + column];
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    long n = argc > 1 ? atol(argv[1]) : 512;
    int rank, size, up = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int part = 1; part * part <= size; part++)
        if (size % part == 0)
            up = part;
    int across = size / up, row = rank / across, column = rank % across;
    n = (n + size - 1) / size * size;
    long height = n / up, width = n / across, panel = n / size, top = row * height, left = column * width;
    double *own_a = block(height, width, a, top, left), *own_b = block(height, width, b, top, left);
    double *c = block(height, width, NULL, 0, 0);
    double *columns = block(height, panel, NULL, 0, 0), *rows = block(panel, width, NULL, 0, 0);
    MPI_Comm row_comm, column_comm;
    MPI_Comm_split(MPI_COMM_WORLD, row, column, &row_comm);
    MPI_Comm_split(MPI_COMM_WORLD, column, row, &column_comm);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (long first = 0; first < n; first += panel) {
        int owner = (int)(first / width);
        if (owner == column)
            for (long r = 0; r < height; r++)
                memcpy(&columns[r * panel], &own_a[r * width + first % width], panel * sizeof *columns);
        MPI_Bcast(columns, (int)(height * panel), MPI_DOUBLE, owner, row_comm);
        owner = (int)(first / height);
        if (owner == row)
            memcpy(rows, &own_b[first % height * width], panel * width * sizeof *rows);
        MPI_Bcast(rows, (int)(panel * width), MPI_DOUBLE, owner, column_comm);
        multiply(c, columns, rows, height, panel, width);
    }
    double seconds = MPI_Wtime() - start, slowest, sum = 0.0, all;

    double *serial_left = block(height, n, a, top, 0), *serial_right = block(n, width, b, 0, left);
    double *serial = block(height, width, NULL, 0, 0);
    multiply(serial, serial_left, serial_right, height, n, width);
    for (long at = 0; at < height * width; at++) {
        sum += c[at];
        if (c[at] != serial[at])
            fail("an element of the product is wrong");
    }
    MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("summa: elements sum up to %.0f in %.6f s\n", all, slowest);
    free(serial);
    free(serial_right);
    free(serial_left);
    free(rows);
    free(columns);
    free(c);
    free(own_b);
    free(own_a);
    MPI_Comm_free(&row_comm);
    MPI_Comm_free(&column_comm);
    MPI_Finalize();
    return 0;
}
