/* Cannon's product of matrices, as crates/hydrant/examples/cannon.rs: MPI_Sendrecv. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

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

static int rank, row, column, mesh;

/* The rank so far down and to the right, around the edges. */
static int at(int down, int right) { return (row + down) % mesh * mesh + (column + right) % mesh; }

static void shift(double **block, double **other, long side, int to, int from) {
    if (to == rank)
        return;
    MPI_Sendrecv(*block, (int)(side * side), MPI_DOUBLE, to, 0, *other, (int)(side * side), MPI_DOUBLE, from, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    double *sent = *block;
    *block = *other;
    *other = sent;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    long n = argc > 1 ? atol(argv[1]) : 512;
    int size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    while ((mesh + 1) * (mesh + 1) <= size)
        mesh++;
    if (mesh * mesh != size)
        fail("the number of ranks is no square");
    row = rank / mesh;
    column = rank % mesh;
    long side = (n + mesh - 1) / mesh, top = row * side, left = column * side;
    n = side * mesh;
    double *own_a = block(side, side, a, top, left), *own_b = block(side, side, b, top, left);
    double *other = block(side, side, NULL, 0, 0), *c = block(side, side, NULL, 0, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    shift(&own_a, &other, side, at(0, mesh - row), at(0, row));
    shift(&own_b, &other, side, at(mesh - column, 0), at(column, 0));
    for (int step = 0; step < mesh; step++) {
        multiply(c, own_a, own_b, side, side, side);
        if (step + 1 < mesh) {
            shift(&own_a, &other, side, at(0, mesh - 1), at(0, 1));
            shift(&own_b, &other, side, at(mesh - 1, 0), at(1, 0));
        }
    }
    double seconds = MPI_Wtime() - start, slowest, sum = 0.0, all;

    double *serial_left = block(side, n, a, top, 0), *serial_right = block(n, side, b, 0, left);
    double *serial = block(side, side, NULL, 0, 0);
    multiply(serial, serial_left, serial_right, side, n, side);
    for (long element = 0; element < side * side; element++) {
        sum += c[element];
        if (c[element] != serial[element])
            fail("an element of the product is wrong");
    }
    MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("cannon: elements sum up to %.0f in %.6f s\n", all, slowest);
    free(serial);
    free(serial_right);
    free(serial_left);
    free(c);
    free(other);
    free(own_b);
    free(own_a);
    MPI_Finalize();
    return 0;
}
