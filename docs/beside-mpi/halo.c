/* A stencil with halo exchange, as crates/hydrant/examples/halo.rs: rows by MPI_Put, columns by
 * MPI_Put with a strided datatype, between two fences. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double initial(long row, long column) { return row < 3 && column < 5 ? 100.0 : 0.0; }

static double spread(double cell, double north, double south, double west, double east) {
    return cell + 0.2 * (north + south + west + east - 4.0 * cell);
}

static long first(long cells, long parts, long part) { return cells * part / parts; }

static void *need(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) {
        fprintf(stderr, "no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

static double *serially(long cells, long steps) {
    long wide = cells + 2;
    double *plate = need(wide * wide, sizeof *plate), *next = need(wide * wide, sizeof *next);
    for (long row = 0; row < cells; row++)
        for (long column = 0; column < cells; column++)
            plate[(row + 1) * wide + column + 1] = initial(row, column);
    for (long step = 0; step < steps; step++) {
        for (long row = 1; row <= cells; row++)
            for (long at = row * wide + 1; at < row * wide + 1 + cells; at++)
                next[at] = spread(plate[at], plate[at - wide], plate[at + wide], plate[at - 1], plate[at + 1]);
        double *swap = plate;
        plate = next;
        next = swap;
    }
    free(next);
    return plate;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    long cells = argc > 1 ? atol(argv[1]) : 512, steps = argc > 2 ? atol(argv[2]) : 200;
    int rank, size, up = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int part = 1; part * part <= size; part++)
        if (size % part == 0)
            up = part;
    int across = size / up, row = rank / across, column = rank % across;
    long top = first(cells, up, row), left = first(cells, across, column);
    long height = first(cells, up, row + 1) - top, width = first(cells, across, column + 1) - left;
    long stride = (cells + across - 1) / across + 2, rows = (cells + up - 1) / up + 2;
    int north = row > 0 ? rank - across : MPI_PROC_NULL, south = row < up - 1 ? rank + across : MPI_PROC_NULL;
    int west = column > 0 ? rank - 1 : MPI_PROC_NULL, east = column < across - 1 ? rank + 1 : MPI_PROC_NULL;

    double *tile, *next = need(rows * stride, sizeof *next);
    MPI_Win window;
    MPI_Win_allocate(rows * stride * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &tile, &window);
    memset(tile, 0, rows * stride * sizeof(double));
    for (long r = 0; r < height; r++)
        for (long c = 0; c < width; c++)
            next[(r + 1) * stride + c + 1] = initial(top + r, left + c);
    MPI_Datatype edge;
    MPI_Type_vector((int)height, 1, (int)stride, MPI_DOUBLE, &edge);
    MPI_Type_commit(&edge);
    long below = row > 0 ? top - first(cells, up, row - 1) + 1 : 0;
    long beside = column > 0 ? left - first(cells, across, column - 1) + 1 : 0;

    MPI_Win_fence(0, window);
    double start = MPI_Wtime();
    for (long step = 0; step < steps; step++) {
        MPI_Put(&next[stride + 1], (int)width, MPI_DOUBLE, north, below * stride + 1, (int)width, MPI_DOUBLE, window);
        MPI_Put(&next[height * stride + 1], (int)width, MPI_DOUBLE, south, 1, (int)width, MPI_DOUBLE, window);
        MPI_Put(&next[stride + 1], 1, edge, west, stride + beside, 1, edge, window);
        MPI_Put(&next[stride + width], 1, edge, east, stride, 1, edge, window);
        MPI_Win_fence(0, window);
        for (long r = 1; r <= height; r++)
            memcpy(&tile[r * stride + 1], &next[r * stride + 1], width * sizeof(double));
        for (long r = 1; r <= height; r++)
            for (long at = r * stride + 1; at < r * stride + 1 + width; at++)
                next[at] = spread(tile[at], tile[at - stride], tile[at + stride], tile[at - 1], tile[at + 1]);
        MPI_Win_fence(0, window);
    }
    double seconds = MPI_Wtime() - start, heat = 0.0, all[2];

    double *serial = serially(cells, steps);
    for (long r = 0; r < height; r++)
        for (long c = 0; c < width; c++) {
            double cell = next[(r + 1) * stride + c + 1];
            heat += cell;
            if (cell != serial[(top + r + 1) * (cells + 2) + left + c + 1]) {
                fprintf(stderr, "cell %ld, %ld is %f\n", top + r, left + c, cell);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
    MPI_Reduce(&heat, &all[0], 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&seconds, &all[1], 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("halo: %.6f of heat in %.6f s\n", all[0], all[1]);
    free(serial);
    free(next);
    MPI_Type_free(&edge);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
