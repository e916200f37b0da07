#!/usr/bin/env python3
"""Changes one line of the product at a time and asks whether a test notices.

usage: tests/mutants.py [--list] [--only N[,N...]] [--source DIR] [--jobs J]
  --list       the mutants, with their files and tests
  --only N     these only, by their numbers in the list
  --source DIR another checkout; a mutant whose text it does not hold is not applicable, and counts for nothing
Files are put back at the end, also after Ctrl-C. Builds are in build/mutants of the checkout.
exit code: 0 all were caught, 1 a mutant survived, 2 the tests do not build or pass without a mutant, 64 a wrong command line, 70 all of the wanted are not applicable
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

# (file, its text, the mutated text, the test binary, its filter or '')
MUTANTS = [
    ('runtime/scheduling/block_manager.cpp', 'fresh + static_cast<size_t>(shared_from_free) > free_.size()', 'fresh > free_.size()', 'scheduling_test', ''),
    ('runtime/scheduling/block_manager.cpp', 'return block.parent == parent && std::ranges::equal', 'return std::ranges::equal', 'scheduling_test', ''),
    ('runtime/scheduling/scheduler.cpp', 'num_completion_tokens() >= params.min_tokens', 'num_completion_tokens() > params.min_tokens', 'scheduling_test', ''),
    ('runtime/scheduling/scheduler.cpp', 'blocks * config_.block_size + 1, config_.max_model_len', 'blocks * config_.block_size, config_.max_model_len', 'scheduling_test', ''),
    ('launch/run_directory/framed_log.cpp', 'if (header.hash != hash_of(header, bytes_, offset_)) return', 'if (header.hash == 0) return', 'run_directory_test', ''),
    ('launch/run_directory/ledger.cpp', 'if (has_result(record.request) && !has_failed(record.request)) return;', 'if (has_result(record.request)) return;', 'run_directory_test', ''),
    ('launch/run_directory/ledger.cpp', 'found->second.count >= 2', 'found->second.count >= 3', 'run_directory_test', ''),
    ('runtime/control/step_codec.cpp', 'check(hash == hash_of(rest_), "its hash")', 'check(true, "its hash")', 'control_test', ''),
    ('runtime/control/step_codec.cpp', 'check(byte != 0 || shift == 0,', 'check(true,', 'control_test', ''),
    ('parallel/shard.cpp', 'return {size * part / parts, size * (part + 1) / parts};', 'return {size / parts * part, size / parts * (part + 1)};', 'parallel_test', 'Shard.*'),
    ('parallel/shard.cpp', 'shared = std::gcd(group, heads / parts)', 'shared = std::min(group, heads / parts)', 'parallel_test', 'Shard.*'),
    ('parallel/shard.cpp', 'std::lcm<int64_t>(64, parts)', 'std::max<int64_t>(64, parts)', 'parallel_test', 'Shard.*'),
    ('parallel/shared_communicator.cpp', 'peer == rank() ? sum : slot(peer, epoch, 0, sum)', 'peer == rank() ? sum : slot(rank(), epoch, 0, sum)', 'parallel_test', '*Shared*'),
    ('parallel/tree_communicator.cpp', 'ops_.add(other, x, x);', 'ops_.add(x, x, x);', 'parallel_test', '*ThreadContract*'),
    ('parallel/shared_communicator.cpp', 'size(index) < bytes', 'size(index) <= bytes', 'parallel_test', 'SumWays*'),
    ('kernels/reference/sampling.cpp', 'a.score > b.score : a.id < b.id', 'a.score > b.score : a.id > b.id', 'kernels_test', '*Sampling*'),
    ('kernels/cpu/sampling.cpp', 'static_cast<double>(row_.top_p) * total', 'static_cast<double>(row_.top_p) * total / 2', 'kernels_test', '*Sampling*'),
    ('layers/sampler.cpp', 'maximum = std::max(maximum, results.maxima[at]);', 'maximum = results.maxima[at];', 'layers_test', ''),
    ('launch/supervision/watchdog.cpp', '          ticks_missed = 0;', '          ticks_missed += 0;', 'supervision_test', 'Watchdog*'),
    ('launch/supervision/health_monitor.cpp', 'if (disk % 2 == 0 || moved) disk_changed_', 'if (disk % 2 == 0) disk_changed_', 'supervision_test', '*HealthMonitor*'),
]
LIMIT = 300  # seconds of a test: what hangs is caught too


def run(command, log, limit=None, **more):
    """Its exit code; None after the limit."""
    with open(log, 'ab') as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, **more)
        try:
            return process.wait(limit)
        except BaseException as trouble:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(trouble, subprocess.TimeoutExpired):
                return None
            raise


def build(source, folder, targets, jobs):
    environment = dict(os.environ, CCACHE_BASEDIR=str(source), CCACHE_NOHASHDIR='1')
    return run(['cmake', '--build', folder, '-j', str(jobs), '--target', *targets], folder / 'mutants.log', cwd=source, env=environment) == 0


def test(folder, name, only):
    command = [folder / name, '--gtest_brief=1', f'--gtest_filter={only or "*"}-*/cuda*']  # without a GPU
    return run(command, folder / 'mutants.log', LIMIT)


def mutated(source, mutant):
    """The bytes of the file, and with the mutant; None where its text is not there once."""
    path = source / mutant[0]
    if not path.is_file():
        return None
    text = path.read_bytes()
    if text.count(mutant[1].encode()) != 1:
        return None
    return text, text.replace(mutant[1].encode(), mutant[2].encode())


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--list', action='store_true')
    parser.add_argument('--only', type=lambda text: [int(n) for n in text.split(',')], default=range(1, len(MUTANTS) + 1))
    parser.add_argument('--source', type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument('--jobs', type=int, default=os.cpu_count())
    parser.error = lambda message: sys.exit(print(f'{message}\n{__doc__}', file=sys.stderr) or 64)
    arguments = parser.parse_args()
    if any(not 1 <= n <= len(MUTANTS) for n in arguments.only):
        parser.error(f'mutants have the numbers 1 to {len(MUTANTS)}')
    if arguments.list:
        for number, (path, text, changed, target, only) in enumerate(MUTANTS, 1):
            print(f'{number:2} {path}: {text.strip()} -> {changed.strip()} ({target} {only})')
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the `finally` below
    source = arguments.source.resolve()
    folder = source / 'build' / 'mutants'
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {number: mutated(source, MUTANTS[number - 1]) for number in arguments.only}
    targets = sorted({MUTANTS[number - 1][3] for number, texts in wanted.items() if texts})
    if not targets:
        print('none of these mutants is applicable')
        return 70
    configure = ['cmake', '--preset', 'release', '-B', folder, '-DMANIPLE_TESTS=ON']
    if run(configure, folder / 'mutants.log', cwd=source) != 0 or not build(source, folder, targets, arguments.jobs):
        print(f'it does not build: {folder}/mutants.log')
        return 2
    for name, only in sorted({MUTANTS[number - 1][3:] for number, texts in wanted.items() if texts}):
        if test(folder, name, only) != 0:
            print(f'{name} {only} fails without a mutant: {folder}/mutants.log')
            return 2
    counts = {'caught': 0, 'survived': 0, 'not applicable': 0}
    for number, texts in wanted.items():
        path, text, changed, target, only = MUTANTS[number - 1]
        start = time.time()
        verdict, how = 'not applicable', ': its text is not there once'
        if texts:
            try:
                (source / path).write_bytes(texts[1])
                built = build(source, folder, [target], arguments.jobs)
                code = test(folder, target, only) if built else None
            finally:
                (source / path).write_bytes(texts[0])
            verdict = 'survived' if built and code == 0 else 'caught'
            how = f' by {target}, {time.time() - start:.0f} s' if built and code is not None else ' by the time limit' if built else ' by the compiler'
        counts[verdict] += 1
        print(f'{number:2} {verdict}{how}: {path}: {text.strip()} -> {changed.strip()}', flush=True)
    print(', '.join(f'{count} {verdict}' for verdict, count in counts.items()))
    return 1 if counts['survived'] else 0


if __name__ == '__main__':
    sys.exit(main())
