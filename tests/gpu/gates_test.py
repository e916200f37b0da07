"""gates.py on logs with known answers."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import gates
from nano_vllm_requests import nano_vllm_requests

QWEN3 = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
         "vocab_size": 151936}


class GatesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = Path(folder.name)

    def leave(self, name, *lines):
        (self.results / name).write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))

    def results_of(self):
        return dict(gates.gates(self.results, QWEN3))

    def test_weights_of_qwen3(self):
        self.assertEqual(gates.Shape(QWEN3).weight_bytes, 2 * (28 * 15728640 + 155582464))
        self.assertEqual(gates.Shape(QWEN3).kv_bytes, 112 << 10)

    def test_roofline_of_one_short_request_is_its_parts(self):
        shape, ceilings = gates.Shape(QWEN3), gates.Ceilings(1e12, 1e15)
        prefill = (2 * 28 * 15728640 * 10 + 2 * 155582464 + 4 * 28 * 2048 * 55) / 1e15
        steps = 2 * shape.weight_bytes / 1e12 + (11 + 12) * shape.kv_bytes / 1e12
        self.assertAlmostEqual(gates.roofline_seconds(shape, ceilings, [(10, 3)]), prefill + steps, places=9)

    def test_engine_and_single_stream(self):
        self.leave("kernels.log", {"kernel": "read_all", "gb_s": 3000}, {"kernel": "product", "tflop_s": 798})
        self.leave("engine.jsonl", *nano_vllm_requests())
        self.leave("engine.1.log", "256 requests: 15000.0 tok/s\n")
        self.leave("engine.2.log", "256 requests: 15600.0 tok/s\n")
        self.leave("single.1.log", "1 request: 900.0 tok/s\n")
        results = self.results_of()
        self.assertRegex(results["nano-vLLM's workload"], "^MISSED: 15000 tok/s, 58 % of 25")
        self.assertRegex(results["single stream"], "^MISSED: 1.111 ms a token, 2.80 x 0.397 ms")

    def test_the_worst_kernel_counts(self):
        decode = {"kernel": "attention_decode", "group": 2, "context": 16384, "us": 10}
        self.leave("kernels.log", {**decode, "sequences": 1, "percent_of_read": 92}, {**decode, "sequences": 32, "percent_of_read": 84},
                   {**decode, "sequences": 1, "context": 256, "percent_of_read": 12},
                   {"kernel": "attention_prefill", "case": "prompts", "sequences": 4, "longest": 4096, "tflop_s": 310, "us": 50})
        results = self.results_of()
        self.assertRegex(results["decode attention from 64 MB on"], r"^MISSED: at worst 84 % .*\(32 x 16384")
        self.assertRegex(results["prefill attention at 4k"], "^met: 310")

    def test_lines_of_every_part(self):
        self.leave("kernels.decode.log", {"kernel": "attention_decode_mixed", "sequences": 256, "step": 1, "group": 2, "us": 50, "percent_of_read": 80},
                   {"kernel": "attention_decode_mixed", "sequences": 62, "step": 800, "group": 2, "us": 40, "percent_of_read": 70})
        self.leave("kernels.sampling.log", {"kernel": "sample_filtered", "rows": 1, "us": 61}, {"kernel": "sample_filtered", "rows": 32, "us": 900})
        self.leave("kernels.blocks.log", {"kernel": "blocks", "of": "attention_decode", "queried": 3, "waiting_queried": 4, "observed": 2},
                   {"kernel": "blocks", "of": "attention_prefill", "observed": "not observed"})
        results = self.results_of()
        self.assertRegex(results["decode attention of mixed lengths"], r"^at worst 70 % .*step 800")
        self.assertRegex(results["filtered draw of 1"], "^MISSED: 61 us, wanted 60")
        self.assertRegex(results["blocks of attention_decode"], "^MISSED: 2 a multiprocessor seen, 3 queried")
        self.assertEqual(len(results), 3)

    def test_torch_counts_with_its_best(self):
        self.leave("kernels.log", {"kernel": "attention_decode", "group": 2, "sequences": 8, "context": 256, "us": 10, "percent_of_read": 9})
        self.leave("peers.decode.log", "a warning\n", {"peer": "a decode", "sequences": 8, "context": 256, "us": 15},
                   {"peer": "b decode", "sequences": 8, "context": 256, "us": 8}, {"peer": "c decode", "sequences": 8, "context": 256, "refused": "no"})
        self.assertRegex(self.results_of()["decode attention beside torch"], r"^MISSED: at worst 0.80 x its speed \(8 x 256\)")


if __name__ == "__main__":
    unittest.main()
