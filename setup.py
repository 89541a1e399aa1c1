"""The compiled kernels; everything else about the project is in pyproject.toml.

They are optional: where there is no C compiler the library is installed without them, and works.
"""

from glob import glob

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "stiefel.backends._compiled",
            sorted(glob("src/compiled/*.c")),
            depends=sorted(glob("src/compiled/*.h") + glob("src/compiled/*.inc")),
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            extra_compile_args=["-O3", "-fno-math-errno"],  # a root is an instruction
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
