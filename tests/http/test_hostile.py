#!/usr/bin/env python3
"""Clients that mean ill, or are broken, at one time with one that is neither: bytes at random, requests with bytes changed, bodies with values changed,
senders that pause, readers that stop, ends in every phase. The server goes on, says nothing but 200 and 4xx (503 when its memory for bodies is taken), gives the
good client the same bytes as ever, and is idle when they are gone. Standard library only.

usage: test_hostile.py PROGRAM [seconds] [seed]      5 seconds; the seed is printed"""
import json, os, random, re, socket, sys, threading, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import Server

HEAD = b'Host: localhost\r\n'
HI = [{'role': 'user', 'content': 'Count from one to ten.'}]
BODIES = [('/v1/chat/completions', {'messages': HI, 'max_tokens': 4, 'temperature': 0.7, 'top_p': 0.9, 'top_k': 5, 'min_p': 0.1, 'seed': 1, 'n': 2, 'stop': ['x', 'three'], 'logprobs': True,
                                    'top_logprobs': 3, 'logit_bias': {'5': -1.5}, 'presence_penalty': 0.1, 'stream_options': {'include_usage': True}, 'draft': {'kind': 'auto', 'width': 4},
                                    'prediction': {'type': 'content', 'content': 'one'}, 'response_format': {'type': 'text'}, 'chat_template_kwargs': {'a': 1}, 'verbatim': True}),
          ('/completions', {'prompt': 'int main(', 'max_tokens': 5, 'logprobs': 2, 'repetition_penalty': 1.1, 'stream': True, 'ignore_eos': True, 'draft': 'lookup', 'cache_salt': 'a'}),
          ('/v1/completions', {'prompt': [[1, 2], [414, 2909, 7]], 'max_tokens': 300, 'ignore_eos': True, 'stream': True, 'stop': 'zz'}),
          ('/tokenize', {'content': 'int main(', 'parse_special': False, 'add_special': True}), ('/v1/tokenize', {'messages': HI}),
          ('/detokenize', {'tokens': [1, 2, 414]}), ('/apply-template', {'messages': [{'role': 'system', 'content': [{'type': 'text', 'text': 'a'}]}, *HI]})]
VALUES = [None, True, False, 0, 1, -1, 2, 17, 0.5, -0.5, 1e30, 2**31, -2**31, 2**63 - 1, '', 'a', 'none', 'auto', '\0', '\ud83d\ude00', 'x' * 5000, [], {}, [None], ['a'], [1], [[1]], {'a': 1},
          {'type': 'text'}, [{'type': 'text', 'text': 'q'}], [{'role': 'user', 'content': None}], [{'role': 'tool', 'content': 'r'}], [10**9], [-1], 'three']


def request(path, body, more=b'', method=b'POST'):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b'%s %s HTTP/1.1\r\n' % (method, path.encode()) + HEAD + more + b'Content-Length: %d\r\n\r\n' % len(data) + data


def changed(r, v, depth=0):
    """v with a few of its values replaced."""
    if r.random() < 0.08 + 0.02 * depth: return r.choice(VALUES)
    if isinstance(v, dict): return {(k if r.random() > 0.02 else r.choice(['', 'a\nb', 'n', 'stream', 'x' * 60])): changed(r, x, depth + 1) for k, x in v.items() if r.random() > 0.05}
    if isinstance(v, list): return [changed(r, x, depth + 1) for x in v for _ in range(r.choice((1, 1, 1, 1, 2, 0)))]
    return v


def spoiled(r, data):
    """Bytes with a few of them changed, put in, or left out."""
    data = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 5))):
        i = r.randrange(len(data)) if r.random() < 0.4 else r.randrange(min(len(data), 150))
        what = r.random()
        if what < 0.3: data[i] = r.randrange(256)
        elif what < 0.6: data[i:i] = r.choice((b'\0', b'\r', b'\n', b'\r\n', b' ', b':', b'%00', b'\xff', b'\r\n\r\n', b'{' * 200, b'"', b'Content-Length: 3\r\n', b'Transfer-Encoding: chunked\r\n', b'Host: a\r\n'))
        elif what < 0.8: del data[i:i + r.randrange(1, 20)]
        else: del data[i:]
        if not data: data = bytearray(b'\n')
    return bytes(data)


class Clients:
    def __init__(self, program, seconds, seed):
        self.s, self.end, self.faults, self.counts, self.lock = Server(program, '--parallel', '4', '--queue', '200', ctx='512'), time.time() + seconds, [], {}, threading.Lock()
        self.seed = seed
        # what the good client asks, and the answers
        self.good = [({'prompt': 'int main(', 'max_tokens': 12, 'temperature': 0, 'logprobs': 3, 'seed': 1, 'verbatim': True, 'draft': d}) for d in ('none', 'auto')]
        self.want = [self.kept(self.s.post('/v1/completions', q)) for q in self.good]

    def kept(self, answer):
        status, _, b = answer
        return status, b.get('choices'), b.get('verbatim', {}).get('logits_sha256'), b.get('error')

    def fault(self, what, *more):
        with self.lock: self.faults.append((what,) + tuple(repr(m)[:600] for m in more))

    def look(self, sent, out, one):
        """Every answer in it has an id when it is ours and a status that may be."""
        heads = re.findall(rb'HTTP/1\.1 (\d{3}) [^\r]*\r\n((?:[^\r\n]+\r\n)*)', out)
        for status, lines in heads:
            with self.lock: self.counts[int(status)] = self.counts.get(int(status), 0) + 1
            if status not in (b'100', b'200', b'204', b'400', b'401', b'403', b'404', b'405', b'413', b'414', b'429', b'431', b'503', b'505'): self.fault('status', status, sent, out)
            if b'application/json' in lines and b'x-request-id: req_' not in lines: self.fault('no id', sent, out)
        if out and not out.startswith(b'HTTP/1.1 '): self.fault('no answer', sent, out)
        if one and not heads: self.fault('silence', sent, out)

    def talk(self, r, data, whole):
        """Sends data as one or in pieces, reads all or some, ends in one of three ways."""
        out = b''
        try:
            with socket.create_connection((self.s.host, self.s.port), 30) as c:
                if r.random() < 0.2: c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                step = len(data) if r.random() < 0.7 else r.randrange(1, max(2, len(data)))
                for i in range(0, len(data), step):
                    c.sendall(data[i:i + step])
                    if step < len(data): time.sleep(r.random() * 0.02)
                how = 1 if whole else r.random()
                if how < 0.2: return None
                if how < 0.3: c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\1\0\0\0\0\0\0\0') # a reset
                if how < 0.5: c.shutdown(socket.SHUT_WR)
                c.settimeout(240 if whole else r.choice((0.02, 0.1, 0.3)))
                while how > 0.6 or len(out) < 300:
                    got = c.recv(65536)
                    if not got: break
                    out += got
        except OSError: pass
        return out

    def ill(self, number):
        r = random.Random(self.seed * 1000 + number)
        while time.time() < self.end:
            path, body = r.choice(BODIES)
            kind, whole = r.random(), False
            if kind < 0.1: data = bytes(r.randrange(256) for _ in range(r.randrange(1, 400)))
            elif kind < 0.4: data = spoiled(r, request(path, body))
            elif kind < 0.5: data = request(path, spoiled(r, json.dumps(body).encode()), b'Connection: close\r\n')
            elif kind < 0.8: data, whole = request(path, changed(r, body), b'Connection: close\r\n'), r.random() < 0.5
            elif kind < 0.9: data = b''.join(request(*r.choice(BODIES)) if r.random() < 0.6 else b'GET %s HTTP/1.1\r\n' % r.choice((b'/health', b'/slots', b'/v1/models/%41', b'/x', b'*', b'/%00')) + HEAD + b'\r\n'
                                             for _ in range(r.randrange(1, 5)))
            else:
                d = json.dumps(body).encode()
                data = b'POST ' + path.encode() + b' HTTP/1.1\r\n' + HEAD + b'Connection: close\r\n' + r.choice((b'', b'Expect: 100-continue\r\n')) + b'Transfer-Encoding: chunked\r\n\r\n'
                while d:
                    n = r.randrange(1, 60)
                    data += b'%x%s\r\n' % (len(d[:n]), r.choice((b'', b'', b';a=b'))) + d[:n] + b'\r\n'
                    d = d[n:]
                data += b'0\r\n' + r.choice((b'', b'X: y\r\n')) + b'\r\n'
                if r.random() < 0.3: data = spoiled(r, data)
            out = self.talk(r, data, whole)
            if out is not None: self.look(data, out, whole)

    def well(self):
        i = 0
        while time.time() < self.end:
            try:
                got = self.kept(self.s.post('/v1/completions', self.good[i % 2]))
                if got != self.want[i % 2] and got[0] not in (429, 503): self.fault('good client', got, self.want[i % 2])
                if self.s.get('/health')[0] != 200: self.fault('health')
            except Exception as e: self.fault('good client', e)
            i += 1
        with self.lock: self.counts['good'] = i


def main():
    program, seconds = os.path.abspath(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 5
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(10**6)
    print('seed', seed, flush=True)
    c = Clients(program, seconds, seed)
    threads = [threading.Thread(target=c.ill, args=(i,)) for i in range(12)] + [threading.Thread(target=c.well)]
    for t in threads: t.start()
    for t in threads: t.join()
    if c.s.p.poll() is not None: c.fault('the server ended', c.s.p.returncode, c.s.log()[-2000:])
    else:
        if not c.s.wait_idle(60): c.fault('not idle', c.s.get('/slots')[2], c.s.get('/metrics')[2])
        end = time.time() + 30 # of 75 s, after which silence ends
        while c.s.metric('connections') > 1 and time.time() < end: time.sleep(0.05)
        if c.s.metric('connections') > 1: c.fault('connections', c.s.metric('connections'))
        if c.kept(c.s.post('/v1/completions', c.good[0])) != c.want[0]: c.fault('good client, at the end')
    if c.s.stop() != 0: c.fault('exit status', c.s.p.returncode, c.s.log()[-3000:])
    for bad in ('Sanitizer', 'level=error'):
        if bad in c.s.log(): c.fault(bad, c.s.log()[-3000:])
    print(dict(sorted(c.counts.items(), key=str)))
    for f in c.faults[:10]: print(*f, sep='\n  ')
    return 1 if c.faults else 0


if __name__ == '__main__': sys.exit(main())
