#!/usr/bin/env python3
"""Counts instructions in the machine code of the kernels: what a source cannot show, and what no test without a GPU measures.

usage: machine_code.py CUOBJDUMP OBJECT...     exit 1 where a budget is missed, 77 without cuobjdump or nvdisasm, which stands beside it or in PATH.
A tile loop is an innermost loop that copies (LDGSTS) and multiplies on tensor cores (HMMA). None may use local memory (LDL, STL) or
divide (I2F, MUFU.RCP); the budgets below are instructions of one pass. A kernel that may start before the one before it has ended (its first
parameter is a PreviousKernel) waits (ACQBULK) on every way before it touches memory that kernels write, from sm_90 on."""
import collections
import os
import re
import shutil
import subprocess
import sys

# Kernel instance -> most instructions of a pass, by architecture where they differ much: a step of a product (4 KiB of weight), a tile of attention.
STEPS = {
    "skinny_product<bf16, true>": 115,
    "decode<bf16, bf16, 128>": 340,
    "decode<bf16, Float8, 128>": {"sm_80": 645, "sm_90": 645, "sm_100": 570},
    "prefill<bf16, bf16, 128, 2>": {"sm_80": 1550, "sm_90": 1380, "sm_100": 1190},
    "prefill<bf16, Float8, 128, 2>": {"sm_80": 1700, "sm_90": 1530, "sm_100": 1330},
}
# Of memory that kernels write, or the end.
TOUCHES = {"LD", "LDG", "LDGSTS", "ST", "STG", "ATOM", "ATOMG", "RED", "REDG", "CALL", "BRX", "EXIT"}
FETCHES = {"LDG", "LDGSTS"}
# Kernel instance, way through the loop that widens codes -> most instructions of a lane for sixteen bytes.
WIDENINGS = {
    ("code_product<bf16, 8, 8>", "integers"): 96,
    ("code_product<bf16, 8, 8>", "floats"): 112,
    ("code_product<bf16, 8, 8>", "floats with a scale"): 152,
    ("code_product<bf16, 4, 8>", "integers"): 188,
    ("code_product<bf16, 4, 8>", "floats with a scale"): 232,
    ("grouped_tile<bf16, 64, true, 8>", "integers"): 96,
    ("grouped_tile<bf16, 64, true, 8>", "floats"): 114,
    ("grouped_tile<bf16, 64, true, 8>", "floats with a scale"): 156,
}


def functions(cuobjdump, path):
    """{(name, architecture): [(address, instruction)]}"""
    text = subprocess.run([cuobjdump, "-sass", path], capture_output=True, text=True, check=True).stdout
    found, architecture, name = {}, "", ""
    for line in text.splitlines():
        if match := re.match(r"\s*code for (sm_\d+)", line):
            architecture = match[1]
        elif match := re.match(r"\s*Function : (\S+)", line):
            name = match[1]
        elif name and (match := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", line)):
            found.setdefault((name, architecture), []).append((int(match[1], 16), match[2]))
    readable = subprocess.run(["c++filt"], input="\n".join(key[0] for key in found), capture_output=True, text=True, check=True).stdout.split("\n")
    return {(name, key[1]): code for (key, code), name in zip(found.items(), readable)}


def short(name):
    name = re.sub(r"maniple::cuda::\(anonymous namespace\)::|maniple::|^void ", "", name)
    return re.sub(r"\(.*$", "", name).replace("__nv_bfloat16", "bf16").replace("__half", "fp16")


def operation(instruction):
    return re.sub(r"^@!?U?P\w+ ", "", instruction).split()[0]


def branch(instruction):
    """(target, whether it may fall through), or None"""
    match = re.match(r"(@!?U?P\w+ )?BRA\S*\s+(?:\S+,\s*)?`?\(?(0x[0-9a-f]+)", instruction)
    return match and (int(match[2], 16), match[1] is not None or "DIV" in instruction)


def loops(code):
    """Slices [head, back edge] of the code."""
    place = {address: k for k, (address, _) in enumerate(code)}
    for k, (address, instruction) in enumerate(code):
        jump = branch(instruction)
        if jump and jump[0] <= address and jump[0] in place:
            yield place[jump[0]], k


def counted(code, loop):
    return collections.Counter(operation(i).split(".")[0] for _, i in code[loop[0]:loop[1] + 1])


def tile_loop(code):
    """The smallest loop that copies and multiplies; None without one."""
    tiles = [loop for loop in loops(code) if (c := counted(code, loop))["HMMA"] and c["LDGSTS"]]
    return min(tiles, key=lambda loop: loop[1] - loop[0], default=None)


def ways(code, loop):
    """{kind: fewest instructions} of the ways through a loop that widens, without turns of inner loops."""
    place = {address: k for k, (address, _) in enumerate(code)}
    head, end = loop
    best, states = {}, {head: {(0, 0, 0): 0}}  # FMUL, F2FP, FADD -> instructions so far
    for k in range(head, end + 1):
        instruction = code[k][1]
        op = operation(instruction)
        arrived = collections.defaultdict(lambda: 1 << 30)
        for (mul, pack, add), length in states.pop(k, {}).items():
            key = (min(mul + op.startswith("FMUL"), 32), min(pack + op.startswith("F2FP"), 8), min(add + op.startswith("FADD"), 16))
            arrived[key] = min(arrived[key], length + 1)
        jump = branch(instruction)
        follows = [k + 1] if not jump else ([k + 1] if jump[1] else []) + [place[jump[0]]] * (jump[0] > code[k][0])
        if k == end:
            for (mul, pack, add), length in arrived.items():
                kind = {(32, 0): "floats with a scale", (16, 0): "floats"}.get((mul, add), "integers" if add == 16 else None) if pack == 8 else None
                if kind:
                    best[kind] = min(best.get(kind, length), length)
            break
        for follower in follows:
            to = states.setdefault(follower, {})
            for key, length in arrived.items():
                to[key] = min(to.get(key, 1 << 30), length)
    return best


def widenings(code):
    """ways() of the shortest loops that widen: over the chunks of a step."""
    best = {}
    for loop in loops(code):
        if counted(code, loop)["STS"] and not counted(code, loop)["HMMA"]:
            for kind, length in ways(code, loop).items():
                best[kind] = min(best.get(kind, length), length)
    return best


def before_waiting(code):
    """Operations on the ways from a kernel's start to its wait."""
    place = {address: k for k, (address, _) in enumerate(code)}
    seen, left, found = set(), [0], set()
    while left:
        k = left.pop()
        if k in seen or k >= len(code) or operation(code[k][1]) == "ACQBULK":
            continue
        seen.add(k)
        found.add(operation(code[k][1]).split(".")[0])
        jump = branch(code[k][1])
        if jump:
            left.append(place[jump[0]])
        if not jump or jump[1]:
            left.append(k + 1)
    return found


def main(cuobjdump, objects):
    os.environ["PATH"] += os.pathsep + os.path.dirname(os.path.abspath(cuobjdump))
    if not shutil.which(cuobjdump) or not shutil.which("nvdisasm"):
        print("skipped: no cuobjdump or no nvdisasm")
        return 77
    missed, architectures, seen, waiting = [], set(), set(), 0

    def check(name, what, number, most):
        print(f"{name}: {what} {number}" + (f" of {most}" if most else ""))
        if number > most:
            missed.append(f"{name}: {what} {number}, at most {most}")

    for path in objects:
        for (signature, architecture), code in functions(cuobjdump, path).items():
            name = short(signature)
            full = f"{name} {architecture}"
            architectures.add(architecture)
            if "PreviousKernel" in signature and int(architecture[3:]) >= 90:
                waiting += 1
                # Products fetch their weights, which no kernel writes.
                early = before_waiting(code) & (TOUCHES - FETCHES if "_product<" in name else TOUCHES)
                if early:
                    missed.append(f"{full}: {', '.join(sorted(early))} before it waits")
            loop = tile_loop(code)
            if not loop:
                continue
            counts = counted(code, loop)
            for banned in ("LDL", "STL", "I2F"):
                if counts[banned]:
                    check(full, f"{banned} in its tile loop", counts[banned], 0)
            if sum("MUFU.RCP" in i for _, i in code[loop[0]:loop[1] + 1]):
                check(full, "MUFU.RCP in its tile loop", 1, 0)
            if name in STEPS:
                seen.add((name, architecture))
                most = STEPS[name]
                check(full, "instructions of a pass", loop[1] - loop[0] + 1, most if isinstance(most, int) else most.get(architecture, max(most.values())))
            kinds = [kind for of, kind in WIDENINGS if of == name]
            if kinds:
                found = widenings(code)
                for kind in kinds:
                    if kind in found:
                        seen.add(((name, kind), architecture))
                        check(full, f"instructions for sixteen bytes, {kind}", found[kind], WIDENINGS[name, kind])
    print(f"{waiting} kernels wait for the one before")
    wanted = [(budget, architecture) for budget in [*STEPS, *WIDENINGS] for architecture in sorted(architectures) or ["any GPU"]]
    missed += [f"not found: {budget} for {architecture}" for budget, architecture in wanted if (budget, architecture) not in seen]
    for line in missed:
        print("MISSED", line, file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
