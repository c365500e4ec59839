#!/usr/bin/env python3
"""Bytes under load: the same requests alone, in groups, with each drafter, streamed and not, with too few KV pages; and many short requests
whose clients leave at random. Standard library only.

usage: test_load.py PROGRAM [short|full]      short: 16 requests and 120 clients; full: 64 and 1,000"""
import json, os, random, socket, sys, time, unittest
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import Server, in_parallel, text_of

PROGRAM, FULL = None, False
TEXT = '/v1/completions'
WORDS = 'int char for while return the of a count define list value node left right zero one two print open file 1 2 3 ( ) { } ; = , .'.split()


def requests(n, tokens):
    """Prompts of 3 to 120 tokens, half of them sampled, some with penalties; seeds fixed."""
    r = random.Random(7)
    out = []
    for i in range(n):
        q = {'prompt': ' '.join(r.choice(WORDS) for _ in range(r.choice((3, 10, 40, 100)))), 'max_tokens': r.randint(2, tokens), 'seed': i,
             'verbatim': True, 'logprobs': 1, 'ignore_eos': True, 'temperature': 0 if i % 2 else 0.9}
        if i % 5 == 0: q.update(repeat_penalty=1.2, presence_penalty=0.3)
        out.append(q)
    return out


def answer(s, q, stream=False):
    """What must not change: text, log-probabilities, hash of the logits, finish reason."""
    if stream:
        status, ev = s.stream(TEXT, q)
        assert status == 200, ev
        last = [c for c in ev if not isinstance(c, str) and c['choices'] and c['choices'][0]['finish_reason']][0]
        lp = [x for c in ev if not isinstance(c, str) and c['choices'][0]['logprobs'] for x in c['choices'][0]['logprobs']['token_logprobs']]
        return text_of(ev), lp, last['verbatim']['logits_sha256'], last['choices'][0]['finish_reason']
    status, _, b = s.post(TEXT, q)
    assert status == 200, b
    c = b['choices'][0]
    return c['text'], c['logprobs']['token_logprobs'], b['verbatim']['logits_sha256'], c['finish_reason']


class Load(unittest.TestCase):
    def test_one_answer(self):
        qs = requests(64 if FULL else 16, 12 if FULL else 6)
        s = Server(PROGRAM, '--parallel', '32')
        try:
            want = [answer(s, {**q, 'draft': 'none'}) for q in qs]
            for n in (8, 32):
                for draft in ('none', 'auto', 'lookup', 'mtp', 'dflash') if FULL else ('none', 'auto', 'dflash' if n == 8 else 'mtp'):
                    for stream in (False, True) if FULL else (n == 8,):
                        got = in_parallel(n, [lambda q=q: answer(s, {**q, 'draft': draft}, stream) for q in qs])
                        for i, (a, b) in enumerate(zip(want, got)): self.assertEqual(a, b, (i, n, draft, stream))
            self.assertTrue(s.wait_idle())
        finally:
            self.assertEqual(s.stop(), 0, s.log() if s.p.poll() else '')
        # a pool too small for the load changes times, never bytes
        s = Server(PROGRAM, '--parallel', '8', '--kv-pages', '4', '--draft', 'none')
        try:
            got = in_parallel(8, [lambda q=q: answer(s, q) for q in qs])
            for i, (a, b) in enumerate(zip(want, got)): self.assertEqual(a, b, ('few pages', i))
            long = [{'prompt': [414, 2909, 7 + i], 'max_tokens': 90, 'ignore_eos': True, 'temperature': 0, 'verbatim': True, 'logprobs': 0} for i in range(4)]
            alone = [answer(s, q) for q in long]
            for _ in range(10):  # on a busy machine the clients may come one after the other
                self.assertEqual(alone, in_parallel(4, [lambda q=q: answer(s, q) for q in long]))
                if s.metric('gave_way_total') > 0: break
            self.assertGreater(s.metric('gave_way_total'), 0)
        finally:
            self.assertEqual(s.stop(), 0)

    def test_many_clients(self):
        n = 1000 if FULL else 120
        qs = requests(20, 5)
        s = Server(PROGRAM, '--parallel', '16', '--queue', '1000')
        try:
            want = [answer(s, q) for q in qs]
            r = random.Random(3)
            plans = [(r.randrange(len(qs)), r.random(), r.random() * 0.3) for _ in range(n)]

            def one(i, kind, wait):
                if kind > 0.4: return answer(s, qs[i], stream=kind > 0.7)
                sock = s.start(TEXT, {**qs[i], 'max_tokens': 60, 'stream': kind > 0.2})
                if kind > 0.1: time.sleep(wait)
                if kind > 0.3: sock.recv(2000)
                sock.close()
                return None
            got = in_parallel(64, [lambda p=p: one(*p) for p in plans])
            for p, g in zip(plans, got):
                if isinstance(g, Exception): raise g
                if g is not None: self.assertEqual(g, want[p[0]], p)
            self.assertTrue(s.wait_idle(60), s.get('/slots')[2])
            self.assertEqual([answer(s, q) for q in qs[:4]], want[:4])
            self.assertEqual(s.get('/health')[0], 200)
        finally:
            code = s.p.poll()
            self.assertIsNone(code, 'the server ended')
            self.assertEqual(s.stop(), 0)

    def test_slow_senders(self):
        """Who sends a byte now and then does not keep a connection: 75 s for headers, 75 s more and 16 KiB a second for a body."""
        if not FULL: self.skipTest('takes 80 s')
        head = b'GET /health HTTP/1.1\r\nHost: localhost\r\nX: '
        body = b'POST /%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n{'
        s = Server(PROGRAM, '--parallel', '2')
        try:
            def connect(data):
                c = socket.create_connection((s.host, s.port), 20)
                c.sendall(data)
                return c
            slow = [connect(d) for d in (head, body % b'tokenize', body % b'nothing') * 5]
            quick = connect(body % b'tokenize') # 40 KiB a second
            stream = s.start(TEXT, {'prompt': 'a', 'max_tokens': 2000, 'ignore_eos': True, 'stream': True, 'logprobs': 20})
            start, ended = time.time(), {}
            last = start
            while len(ended) < len(slow) and time.time() - start < 120:
                if time.time() - last > 20: self.skipTest('the machine stood still')
                last = time.time()
                for c in slow:
                    if c in ended: continue
                    try:
                        c.send(b' ')
                        c.setblocking(False)
                        if c.recv(1) == b'': raise ConnectionError
                    except BlockingIOError: pass
                    except OSError: ended[c] = time.time() - start
                quick.sendall(b' ' * 40960)
                time.sleep(1)
            self.assertEqual(len(ended), len(slow))
            self.assertGreater(min(ended.values()), 70)
            quick.setblocking(False)
            with self.assertRaises(BlockingIOError): quick.recv(1)
            stream.settimeout(60) # who answers is not asked to hurry
            got = b''
            while b'[DONE]' not in got[-100:]:
                more = stream.recv(65536)
                self.assertTrue(more)
                got = got[-100:] + more
            self.assertEqual(s.get('/health')[0], 200)
            for c in (*slow, quick, stream): c.close()
        finally:
            self.assertEqual(s.stop(), 0)


if __name__ == '__main__':
    PROGRAM = os.path.abspath(sys.argv[1])
    FULL = 'full' in sys.argv[2:]
    unittest.main(argv=sys.argv[:1] + [a for a in sys.argv[2:] if a not in ('short', 'full')])
