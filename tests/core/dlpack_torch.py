"""dlpack_torch.py LIBRARY: PyTorch's tensors through ringtape's DLPack and back. Exit status 77: no PyTorch."""
import ctypes
import sys

try:
    import torch
except ImportError:
    sys.exit(77)

api = ctypes.pythonapi
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
library = ctypes.CDLL(sys.argv[1])


def through(function, x):
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    capsule = torch.utils.dlpack.to_dlpack(x)
    result = function(api.PyCapsule_GetPointer(capsule, b"dltensor"))
    api.PyCapsule_SetName(capsule, b"used_dltensor")
    return torch.from_dlpack(api.PyCapsule_New(result, b"dltensor", None))


types = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
compared = 0
for dtype in types:
    x = (torch.arange(60) % 7).to(dtype).reshape(3, 4, 5)
    for view in x, x.transpose(0, 2), x[1:, ::2, 3], x[0, 0, 0], x[:, :0], x[:, :1].expand(3, 4, 5):
        y = through(library.same, view)
        assert y.dtype == dtype and y.shape == view.shape and torch.equal(y, view), (dtype, view.shape)
        assert y.numel() == 0 or (y.data_ptr() == view.data_ptr() and y.stride() == view.stride()), view.stride()
        if dtype.is_floating_point:
            assert torch.equal(through(library.doubled, view), 2 * view), (dtype, view.shape)
        compared += 1
x = torch.zeros(4)
through(library.same, x)[2] = 5
assert x.tolist() == [0, 0, 5, 0]
print(f"{compared} tensors of PyTorch {torch.__version__} there and back")
