#!/usr/bin/env python3
"""The official openai package against the server. Makes a virtual environment with it (from PyPI) the first time, under
$VERBATIM_TEST_VENV or build/openai-venv beside the program; skipped (exit 77) where that cannot be made.

usage: openai_suite.py PROGRAM"""
import os, subprocess, sys, unittest
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import Server

PROGRAM = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else None
VENV = os.environ.get('VERBATIM_TEST_VENV') or os.path.join(os.path.dirname(PROGRAM or '.'), 'openai-venv')


def enter_venv():
    python = os.path.join(VENV, 'bin', 'python')
    if os.path.abspath(sys.prefix) == os.path.abspath(VENV): return
    try:
        if not os.path.exists(python): subprocess.run([sys.executable, '-m', 'venv', VENV], check=True, capture_output=True)
        if subprocess.run([python, '-c', 'import openai'], capture_output=True).returncode != 0:
            subprocess.run([python, '-m', 'pip', 'install', '-q', 'openai'], check=True, capture_output=True, timeout=600)
    except (subprocess.SubprocessError, OSError) as e:
        print('skipped: no virtual environment with openai: %s' % e)
        sys.exit(77)
    os.execv(python, [python, os.path.abspath(__file__)] + sys.argv[1:])


enter_venv()
import openai

HI = [{'role': 'system', 'content': 'Answer briefly.'}, {'role': 'user', 'content': 'Count from one to ten.'}]


class OpenAI(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s = Server(PROGRAM, '--parallel', '8', env={'VERBATIM_API_KEY': 'k'})
        cls.c = openai.OpenAI(base_url='http://127.0.0.1:%d/v1' % cls.s.port, api_key='k', max_retries=0, timeout=120)

    @classmethod
    def tearDownClass(cls):
        cls.c.close()
        assert cls.s.stop() == 0

    def chat(self, **k): return self.c.chat.completions.create(**{'model': 'atto', 'messages': HI, 'max_tokens': 8, 'temperature': 0, **k})

    def test_models(self):
        self.assertEqual([m.id for m in self.c.models.list()], ['atto'])
        self.assertEqual(self.c.models.retrieve('atto').owned_by, 'verbatim')

    def test_chat(self):
        a = self.chat()
        self.assertEqual((a.choices[0].finish_reason, a.choices[0].message.role, a.usage.completion_tokens), ('length', 'assistant', 8))
        self.assertEqual(a.usage.total_tokens, a.usage.prompt_tokens + 8)
        text, usage = '', None
        with self.chat(stream=True, stream_options={'include_usage': True}) as st:
            for chunk in st:
                if chunk.choices: text += chunk.choices[0].delta.content or ''
                if chunk.usage: usage = chunk.usage
        self.assertEqual((text, usage.completion_tokens), (a.choices[0].message.content, 8))
        self.assertTrue(a._request_id.startswith('req_'))

    def test_stop_seed_n(self):
        a = self.chat(temperature=2.5, seed=5, n=3)
        b = self.chat(temperature=2.5, seed=5)
        self.assertEqual(a.choices[0].message.content, b.choices[0].message.content)
        self.assertEqual([c.index for c in a.choices], [0, 1, 2])
        whole = self.chat(max_tokens=12).choices[0].message.content
        cut = self.chat(max_tokens=12, stop=['three']).choices[0]
        self.assertEqual((cut.message.content, cut.finish_reason), (whole[:whole.index('three')], 'stop'))

    def test_logprobs(self):
        kinds = [self.chat(logprobs=True, top_logprobs=5, extra_body={'draft': d}).choices[0].logprobs for d in ('none', 'lookup', 'mtp', 'dflash', 'auto')]
        for k in kinds[1:]: self.assertEqual(k, kinds[0])
        self.assertEqual([len(t.top_logprobs) for t in kinds[0].content], [5] * 8)
        with self.chat(logprobs=True, top_logprobs=5, stream=True) as st:
            got = [t for c in st if c.choices and c.choices[0].logprobs for t in c.choices[0].logprobs.content]
        self.assertEqual([(t.token, t.logprob) for t in got], [(t.token, t.logprob) for t in kinds[0].content])

    def test_verbatim(self):
        a = self.chat(extra_body={'verbatim': True})
        b = self.chat(extra_body={'verbatim': True, 'draft': 'none'})
        self.assertEqual(a.model_extra['verbatim']['logits_sha256'], b.model_extra['verbatim']['logits_sha256'])

    def test_completions(self):
        a = self.c.completions.create(model='m', prompt='int main(', max_tokens=6, temperature=0, logprobs=2, extra_body={'ignore_eos': True})
        self.assertEqual((a.object, len(a.choices[0].logprobs.tokens)), ('text_completion', 6))
        text = ''.join(c.choices[0].text for c in self.c.completions.create(model='m', prompt='int main(', max_tokens=6, temperature=0, stream=True,
                                                                            extra_body={'ignore_eos': True}))
        self.assertEqual(text, a.choices[0].text)

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as e: self.chat(temperature='hot')
        self.assertEqual(e.exception.param, 'temperature')
        with self.assertRaises(openai.BadRequestError) as e: self.c.completions.create(model='m', prompt=[5] * 5000)
        self.assertEqual(e.exception.code, 'context_length_exceeded')
        with self.assertRaises(openai.NotFoundError): self.c.embeddings.create(model='m', input='x')
        with self.assertRaises(openai.AuthenticationError): self.c.with_options(api_key='wrong').models.list()

    def test_cancel(self):
        with self.chat(stream=True, max_tokens=1000, extra_body={'ignore_eos': True}) as st:
            for i, _ in enumerate(st):
                if i == 3: break
        self.s.get = lambda p, **k: Server.get(self.s, p, headers={'x-api-key': 'k'})
        self.assertTrue(self.s.wait_idle())

    def test_async(self):
        import asyncio

        async def ask():
            async with openai.AsyncOpenAI(base_url=str(self.c.base_url), api_key='k', max_retries=0) as c:
                return await asyncio.gather(*[c.chat.completions.create(model='atto', messages=HI, max_tokens=8, temperature=0) for _ in range(12)])
        want = self.chat().choices[0].message.content
        for a in asyncio.run(ask()): self.assertEqual(a.choices[0].message.content, want)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
