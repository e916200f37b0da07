#!/usr/bin/env python3
"""What a machine with GPUs is, as JSON: devices, libraries, limits. What cannot be asked is null.

usage: facts.py PROGRAM JSON_FILE      PROGRAM: maniple, for its --version. Prints one line about the first GPU."""

import ctypes
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

# Of each GPU in `nvidia-smi -q -x`: a field is the first of these paths that is there, since drivers name them differently.
SMI_FIELDS = {
    "name": ["product_name"], "memory": ["fb_memory_usage/total"], "mig": ["mig_mode/current_mig"], "ecc": ["ecc_mode/current_ecc"],
    "compute_mode": ["compute_mode"], "persistence": ["persistence_mode"], "vbios": ["vbios_version"], "temperature": ["temperature/gpu_temp"],
    "power_limit": ["gpu_power_readings/current_power_limit", "gpu_power_readings/power_limit", "power_readings/power_limit"],
    "sm_clock": ["clocks/sm_clock"], "most_sm_clock": ["max_clocks/sm_clock"], "most_memory_clock": ["max_clocks/mem_clock"],
    "pcie_generation": ["pci/pci_gpu_link_info/pcie_gen/current_link_gen"], "pcie_width": ["pci/pci_gpu_link_info/link_widths/current_link_width"]}
# cudaDeviceAttr and CUdevice_attribute have the same numbers.
ATTRIBUTES = {"sms": 16, "l2_bytes": 38, "shared_bytes_a_block": 8, "shared_bytes_opt_in": 97, "shared_bytes_an_sm": 81, "registers_an_sm": 82,
              "major": 75, "minor": 76, "multicast": 132}


def output(*command, seconds=8):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL)
        return done.stdout.strip() or None if done.returncode == 0 else None
    except (OSError, subprocess.SubprocessError):
        return None


def smi():
    text = output("nvidia-smi", "-q", "-x")
    try:
        root = ET.fromstring(text or "")
    except ET.ParseError:
        return {"driver": None, "driver_cuda": None, "gpus": None}
    first = lambda gpu, paths: next((found.strip() for found in map(gpu.findtext, paths) if found), None)
    gpus = [{name: first(gpu, paths) for name, paths in SMI_FIELDS.items()} for gpu in root.iter("gpu")]
    for gpu, element in zip(gpus, root.iter("gpu")):
        reasons = [each for tag in ("clocks_event_reasons", "clocks_throttle_reasons") for group in element.iter(tag) for each in group]
        gpu["throttle_reasons"] = [each.tag for each in reasons if each.text == "Active"] if reasons else None
    return {"driver": root.findtext("driver_version"), "driver_cuda": root.findtext("cuda_version"), "gpus": gpus}


def library(*names):
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass


def version(name, *libraries):
    """What a function int *(int* version) says."""
    number = ctypes.c_int()
    function = getattr(library(*libraries), name, None)
    return number.value if function and function(ctypes.byref(number)) == 0 else None


def cublaslt():
    function = getattr(library("libcublasLt.so.13", "libcublasLt.so.12"), "cublasLtGetVersion", None)
    if function:
        function.restype = ctypes.c_size_t
        return function()


def from_driver():
    """The driver's own answers. Runs in a process of its own, since a driver may hang."""
    cuda = library("libcuda.so.1")
    count, number = ctypes.c_int(), ctypes.c_int()
    if not cuda or cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return None
    ask = lambda call, *arguments: number.value if call(ctypes.byref(number), *arguments) == 0 else None
    devices = range(count.value)
    return {"api": ask(cuda.cuDriverGetVersion),
            "devices": [{name: ask(cuda.cuDeviceGetAttribute, code, device) for name, code in ATTRIBUTES.items()} for device in devices],
            "peer_access": [[None if a == b else ask(cuda.cuDeviceCanAccessPeer, a, b) for b in devices] for a in devices]}


def facts(program):
    shm = shutil.disk_usage("/dev/shm") if os.path.isdir("/dev/shm") else None
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return {**smi(), "cuda": json.loads(output(sys.executable, __file__, "--driver") or "null"),
            "runtime_api": version("cudaRuntimeGetVersion", "libcudart.so.13", "libcudart.so.12"), "nccl": version("ncclGetVersion", "libnccl.so.2"),
            "cublaslt": cublaslt(), "mpi": (output("mpirun", "--version") or "").split("\n")[0] or None, "maniple": output(program, "--version"),
            "topology": output("nvidia-smi", "topo", "-m"), "p2p": output("nvidia-smi", "topo", "-p2p", "r"),
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "cores": os.cpu_count(), "allowed_cores": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "shm_bytes": shm and shm.total, "shm_free_bytes": shm and shm.free,
            "locked_bytes": None if locked == resource.RLIM_INFINITY else locked, "locked_unlimited": locked == resource.RLIM_INFINITY,
            "kernel": platform.release(), "libc": " ".join(platform.libc_ver()), "python": platform.python_version()}


def main():
    if sys.argv[1:] == ["--driver"]:
        return print(json.dumps(from_driver()))
    program, path = sys.argv[1:]
    found = facts(program)
    with open(path, "w") as file:
        json.dump(found, file, indent=1)
    gpu = (found["gpus"] or [{}])[0]
    print(f"{len(found['gpus'] or [])} x {gpu.get('name')}, driver {found['driver']}, NCCL {found['nccl']}, cuBLASLt {found['cublaslt']}, MIG {gpu.get('mig')}")


if __name__ == "__main__":
    main()
