/* `stiefel.backends._compiled`: the hottest kernels once more, for NumPy arrays of double precision.
 *
 * Each repeats a formula of the library, by the same name, and `tests/test_compiled.py` compares
 * the two.  The library works without this module, more slowly where matrices are small.
 */
#include "landings.h"
#include "wide_arrivals.h"
#include "batch.h"
#include "blas.h"
#include "eigen.h"
#include "frames.h"
#include "leaves.h"
#include "matrices.h"
#include "vectors.h"
#include "metric.h"
#include "normal.h"
#include "pairs.h"
#include "rows.h"
#include "stack_pairs.h"
#include "turns.h"
#include "wide.h"

#define KERNEL(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef kernels[] = {
    KERNEL(lower_gradient),
    KERNEL(prepare),
    KERNEL(prepare_tangent),
    KERNEL(displacement),
    KERNEL(point),
    KERNEL(secant_pair),
    KERNEL(transport),
    KERNEL(velocity),
    KERNEL(raise_index),
    KERNEL(vector_gradient),
    KERNEL(vector_prepare),
    KERNEL(vector_point),
    KERNEL(vector_pair),
    KERNEL(units_gradient),
    KERNEL(units_prepare),
    KERNEL(units_point),
    KERNEL(units_pair),
    KERNEL(vectors_apart),
    KERNEL(plain_vector_pair),
    KERNEL(vector_stride),
    KERNEL(units_stride),
    KERNEL(plain_units_pair),
    KERNEL(plain_units_landing),
    KERNEL(plain_products),
    KERNEL(plain_squares),
    KERNEL(plain_remember),
    KERNEL(plain_units_direction),
    KERNEL(plain_direction),
    KERNEL(lower_span_gradient),
    KERNEL(extrapolate),
    KERNEL(squares),
    KERNEL(squared_change),
    KERNEL(framed_gradient),
    KERNEL(framed_ray),
    KERNEL(framed_point),
    KERNEL(prepare_wide),
    KERNEL(wide_point),
    KERNEL(wide_pair),
    KERNEL(wide_aim),
    KERNEL(wide_arrival),
    KERNEL(wide_stride),
    KERNEL(framed_arrival),
    KERNEL(framed_stride),
    KERNEL(eigh_rows),
    KERNEL(mean_metric),
    KERNEL(learn),
    KERNEL(spread),
    KERNEL(weighed),
    KERNEL(remember_pair),
    KERNEL(first_loop),
    KERNEL(second_loop),
    KERNEL(straight_pair),
    KERNEL(matrix_aim),
    KERNEL(matrix_arrival),
    KERNEL(matrix_landing),
    KERNEL(matrix_stride),
    KERNEL(leaves_aim),
    KERNEL(leaves_remember),
    KERNEL(leaves_balanced),
    KERNEL(leaves_arrival),
    KERNEL(stack_aim_apart),
    KERNEL(stack_look),
    KERNEL(stack_gammas),
    KERNEL(stack_first_loop),
    KERNEL(stack_second_loop),
    KERNEL(turns_gradient),
    KERNEL(turns_point),
    KERNEL(turns_defect),
    KERNEL(turns_ray),
    KERNEL(turns_straightened),
    KERNEL(turns_aim),
    KERNEL(turns_aim_apart),
    KERNEL(turns_stride),
    KERNEL(rows_grown),
    KERNEL(rows_grams),
    KERNEL(rows_combined),
    KERNEL(rows_ritz),
    KERNEL(rows_inverse),
    KERNEL(rows_step),
    KERNEL(rows_look),
    KERNEL(rows_symmetrising),
    KERNEL(normal_factor),
    KERNEL(normal_solve),
    KERNEL(tangent_part),
    KERNEL(restore_zeros),
    KERNEL(compact_model),
    KERNEL(learn_columns),
    KERNEL(proximal_step),
    KERNEL(batch_lower),
    KERNEL(batch_trial),
    KERNEL(batch_pair),
    KERNEL(batch_remember),
    KERNEL(batch_arrive),
    KERNEL(batch_observe),
    KERNEL(batch_points),
    KERNEL(batch_recognise),
    {NULL, NULL, 0, NULL},
};

static int loaded(PyObject *module) { return load_blas(); }

static PyModuleDef_Slot slots[] = {{Py_mod_exec, loaded}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "stiefel.backends._compiled", NULL, 0, kernels, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__compiled(void) { return PyModuleDef_Init(&definition); }
