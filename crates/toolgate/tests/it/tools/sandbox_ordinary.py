# Ordinary code that must work in the sandbox of `code_execution`.
import asyncio, csv, hashlib, json, os, pathlib, shutil, signal, sqlite3, subprocess, sys, tarfile, tempfile, threading
import time, zipfile, zlib
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool: assert sum(pool.map(lambda n: n * n, range(100))) == 328350
async def main():
    process = await asyncio.create_subprocess_exec('sh', '-c', 'echo hello', stdout=-1)
    assert (await process.communicate())[0] == b'hello\n'
asyncio.run(main())
base = sqlite3.connect('data.sqlite')
base.execute('create table t (a)'); base.execute('insert into t values (1)'); base.commit(); base.close()
pathlib.Path('d/e').mkdir(parents=True); pathlib.Path('d/e/f').write_text('x')
shutil.copy('d/e/f', 'copy'); shutil.copy2('d/e/f', 'copy2'); shutil.copytree('d', 'tree')
with tarfile.open('a.tar.gz', 'w:gz') as archive: archive.add('d')
with tarfile.open('a.tar.gz') as archive: archive.extractall('out')
with zipfile.ZipFile('a.zip', 'w') as archive: archive.write('d/e/f')
shutil.move('tree', 'moved'); shutil.rmtree('moved'); os.rename('copy', 'renamed'); os.link('renamed', 'linked')
os.remove('linked'); os.symlink('renamed', 'sym'); assert open('sym').read() == 'x'; os.mkfifo('pipe')
with tempfile.TemporaryDirectory() as folder: open(folder + '/x', 'w').write('x')
child = subprocess.Popen(['sleep', '100']); child.kill(); assert child.wait() == -9
try: subprocess.run(['sleep', '100'], timeout=0.1)
except subprocess.TimeoutExpired: pass
pid = os.fork()
if pid == 0: os.abort()
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -6
signal.setitimer(signal.ITIMER_REAL, 10); signal.setitimer(signal.ITIMER_REAL, 0)
assert subprocess.run('seq 3 | sort -r | tr \\n , ; touch n; touch n; cp -p n m; ls -la > /dev/null; date > /dev/null; '
    'awk "BEGIN { print 1 }" | sed s/1/2/; grep -c x sym; find . > /dev/null; mktemp > /dev/null; gzip -k renamed; '
    'sleep 0.01 & wait', shell=True, capture_output=True, text=True).returncode == 0
import multiprocessing
if __name__ == '__main__':
    process = multiprocessing.get_context('fork').Process(target=print, args=('child',))
    process.start(); process.join(); assert process.exitcode == 0
for module in ('numpy', 'pandas'):
    try: loaded = __import__(module)
    except ModuleNotFoundError: continue
    if module == 'numpy': assert (loaded.ones((300, 300)) @ loaded.ones((300, 300)))[0, 0] == 300
if shutil.which('node'):
    script = 'const {execSync} = require(`child_process`); console.log(execSync(`echo node`).toString())'
    done = subprocess.run(['node', '--max-old-space-size=64', '-e', script], capture_output=True, text=True)
    assert 'node' in done.stdout or 'memory' in done.stderr.lower(), done
print('all works')
