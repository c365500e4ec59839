"""A server under test, and a small client on the standard library."""
import http.client, json, os, re, signal, socket, subprocess, tempfile, threading, time


class Server:
    def __init__(self, program, *args, env=None, ctx='2048', wait=120):
        self.home = tempfile.TemporaryDirectory()
        e = {k: v for k, v in os.environ.items() if not k.startswith('VERBATIM_')}
        e.update({'VERBATIM_HOME': self.home.name}, **(env or {}))
        self.log_path = os.path.join(self.home.name, 'log')
        self.log_file = open(self.log_path, 'wb')
        self.p = subprocess.Popen([program, 'serve', '--port', '0', '--ctx', ctx, *args], stdout=subprocess.PIPE,
                                  stderr=self.log_file, env=e)
        line = self.p.stdout.readline().decode()
        m = re.match(r'Listening at http://([^:/]+):(\d+)', line)
        if not m:
            self.p.wait()
            raise RuntimeError('no server: %r\n%s' % (line, self.log()))
        self.host, self.port = m.group(1), int(m.group(2))

    def log(self):
        if not os.path.exists(self.log_path): return self.last_log
        with open(self.log_path, 'rb') as f: return f.read().decode(errors='replace')

    def connect(self, timeout=240):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def call(self, method, path, body=None, headers=None, timeout=240):
        """(status, headers, bytes)"""
        c = self.connect(timeout)
        try:
            if body is not None and not isinstance(body, (bytes, str)): body = json.dumps(body)
            c.request(method, path, body, {'Content-Type': 'application/json', **(headers or {})})
            r = c.getresponse()
            return r.status, {k.lower(): v for k, v in r.getheaders()}, r.read()
        finally:
            c.close()

    def post(self, path, body, **k):
        s, h, b = self.call('POST', path, body, **k)
        return s, h, json.loads(b)

    def get(self, path, **k): return self.call('GET', path, **k)

    def raw(self, data, timeout=20, half_close=False):
        """Sends bytes, returns all that comes until the server closes (or the time is up)."""
        with socket.create_connection((self.host, self.port), timeout) as s:
            s.sendall(data)
            if half_close: s.shutdown(socket.SHUT_WR)
            out = b''
            try:
                while True:
                    got = s.recv(65536)
                    if not got: return out, True
                    out += got
            except (TimeoutError, ConnectionResetError):
                return out, False

    def stream(self, path, body):
        """The events of a streamed answer, as (name of the last line, list of JSON objects)."""
        c = self.connect()
        try:
            c.request('POST', path, json.dumps({**body, 'stream': True}), {'Content-Type': 'application/json'})
            r = c.getresponse()
            if r.status != 200: return r.status, json.loads(r.read())
            return 200, events(r.read())
        finally:
            c.close()

    def start(self, path, body):
        """A connection on which a request was sent and nothing was read."""
        data = json.dumps(body).encode()
        s = socket.create_connection((self.host, self.port), 240)
        s.sendall(b'POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n' %
                  (path.encode(), len(data)) + data)
        return s

    def busy(self): return sum(x['is_processing'] for x in json.loads(self.get('/slots')[2]))

    def metric(self, name):
        for line in self.get('/metrics')[2].decode().splitlines():
            if line.startswith('verbatim_%s ' % name): return float(line.split()[1])
        raise KeyError(name)

    def wait_idle(self, seconds=30):
        end = time.time() + seconds
        while time.time() < end:
            if self.busy() == 0 and self.metric('requests_waiting') == 0 and self.metric('requests_live') == 0: return True
            time.sleep(0.02)
        return False

    def stop(self, sig=signal.SIGTERM, seconds=120):
        if self.p.stdout.closed: return self.p.returncode
        if self.p.poll() is None: self.p.send_signal(sig)
        try: return self.p.wait(seconds)
        except subprocess.TimeoutExpired:
            self.p.kill()
            raise
        finally:
            self.p.stdout.close()
            self.log_file.close()
            self.last_log = self.log()
            self.home.cleanup()


def events(data):
    """SSE text -> JSON objects; '[DONE]' stays a string."""
    out = []
    for block in data.decode().split('\n\n'):
        for line in block.split('\n'):
            if line.startswith('data: '): out.append(line[6:] if line[6:] == '[DONE]' else json.loads(line[6:]))
    return out


def text_of(chunks, index=0):
    out = ''
    for c in chunks:
        if isinstance(c, str): continue
        for x in c.get('choices', []):
            if x['index'] == index: out += x['text'] if 'text' in x else x['delta'].get('content') or ''
    return out


def in_parallel(n, jobs):
    """Runs callables, n at a time; their results in order."""
    out, lock, todo = [None] * len(jobs), threading.Lock(), list(range(len(jobs)))

    def work():
        while True:
            with lock:
                if not todo: return
                i = todo.pop(0)
            try: out[i] = jobs[i]()
            except Exception as e: out[i] = e
    threads = [threading.Thread(target=work) for _ in range(n)]
    for t in threads: t.start()
    for t in threads: t.join()
    return out
