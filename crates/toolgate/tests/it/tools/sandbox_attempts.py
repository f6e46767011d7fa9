# Attempts to escape from the sandbox of `code_execution`. Each begins with a line `#: NAME` and runs alone, as the body
# of a function, after `sandbox_prelude.py`. A call that the sandbox refuses raises OSError. `escaped` reports an effect
# that can be seen from inside; `sandbox_escapes.rs` checks the effects that can be seen from outside.

#: prlimit of another process
call(nr(302, 261), VICTIM, 7, struct.pack('QQ', 3, 3), 0)
#: prlimit of the parent
call(nr(302, 261), PARENT, 0, struct.pack('QQ', 1, 1), 0); escaped('limited')
#: prlimit raises its own limit
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1)); escaped('raised')
#: kill another process
os.kill(VICTIM, signal.SIGKILL)
#: kill the parent
os.kill(PARENT, signal.SIGKILL)
#: kill all shims
for pid in range(2, os.getpid() + 50):
    if pid != os.getpid():
        try: os.kill(pid, signal.SIGWINCH)
        except OSError: pass
#: kill every process
os.kill(-1, signal.SIGWINCH)
#: stop the parent
os.kill(PARENT, signal.SIGSTOP)
#: tgkill another process
call(nr(234, 131), VICTIM, VICTIM, 9)
#: tkill another process
call(nr(200, 130), VICTIM, 9)
#: rt_sigqueueinfo to another process
call(nr(129, 138), VICTIM, 9, struct.pack('iii', 9, 0, -1) + bytes(116))
#: pidfd_send_signal to another process
call(424, os.pidfd_open(VICTIM), 9, 0, 0)
#: F_SETOWN sends a signal to another process
r, w = os.pipe()
fcntl.fcntl(r, 10, signal.SIGKILL)
fcntl.fcntl(r, fcntl.F_SETOWN, VICTIM)
fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)
os.write(w, b'x')
#: F_SETOWN_EX sends a signal to another process
r, w = os.pipe()
fcntl.fcntl(r, 10, signal.SIGKILL)
fcntl.fcntl(r, 15, struct.pack('ii', 1, VICTIM))
fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)
os.write(w, b'x')
#: ptrace attach
call(nr(101, 117), 16, VICTIM, 0, 0); escaped('attached')
#: ptrace seize of the parent
call(nr(101, 117), 0x4206, PARENT, 0, 0); escaped('seized')
#: ptrace traceme
call(nr(101, 117), 0, 0, 0, 0); escaped('traced')
#: process_vm_readv
buffer = ctypes.create_string_buffer(8)
local = struct.pack('QQ', ctypes.addressof(buffer), 8)
call(nr(310, 270), VICTIM, local, 1, struct.pack('QQ', 0x400000, 8), 1, 0); escaped('read')
#: process_vm_writev
buffer = ctypes.create_string_buffer(8)
local = struct.pack('QQ', ctypes.addressof(buffer), 8)
call(nr(311, 271), VICTIM, local, 1, struct.pack('QQ', 0x400000, 8), 1, 0); escaped('written')
#: memory of another process
open(f'/proc/{VICTIM}/mem', 'r+b'); escaped('open')
#: environment of another process
print(open(f'/proc/{VICTIM}/environ').read()); escaped('read')
#: environment of the parent
print(open(f'/proc/{PARENT}/environ').read()); escaped('read')
#: descriptors of another process
os.listdir(f'/proc/{VICTIM}/fd'); escaped('listed')
#: root of another process
print(open(f'/proc/{VICTIM}/root{SECRET}').read()); escaped('read')
#: working folder of another process
os.readlink(f'/proc/{VICTIM}/cwd'); escaped('read')
#: pidfd_getfd
call(438, os.pidfd_open(VICTIM), 0, 0); escaped('taken')
#: pidfd_getfd of the parent
call(438, os.pidfd_open(PARENT), 0, 0); escaped('taken')
#: kcmp
call(nr(312, 272), VICTIM, os.getpid(), 1, 0, 0); escaped('compared')
#: setpriority of another process
os.setpriority(os.PRIO_PROCESS, VICTIM, 19)
#: setpriority of the user
os.setpriority(os.PRIO_USER, 0, 19); escaped('set')
#: sched_setaffinity of another process
os.sched_setaffinity(VICTIM, {0})
#: sched_setscheduler of another process
os.sched_setscheduler(VICTIM, os.SCHED_IDLE, os.sched_param(0))
#: ioprio_set of another process
call(nr(251, 30), 1, VICTIM, 3 << 13); escaped('set')
#: oom_score_adj of another process
open(f'/proc/{VICTIM}/oom_score_adj', 'w').write('1000'); escaped('written')
#: migrate_pages of another process
call(nr(256, 238), VICTIM, 1, 0, 0); escaped('migrated')
#: process_madvise
call(440, os.pidfd_open(VICTIM), 0, 0, 21, 0); escaped('advised')
#: get_robust_list of another process
call(nr(274, 100), VICTIM, bytes(8), bytes(8)); escaped('read')
#: setpgid into the group of the parent
os.setpgid(0, os.getpgid(PARENT)); os.kill(0, signal.SIGWINCH)

#: read a file of the project
print(open(SECRET).read()); escaped('read')
#: read through a relative path
print(open('../../../.env').read()); escaped('read')
#: read through a symbolic link
os.symlink(SECRET, 'link'); print(open('link').read()); escaped('read')
#: read through a hard link
os.link(SECRET, 'hard'); print(open('hard').read()); escaped('read')
#: a symbolic link among the output files
os.symlink(SECRET, 'result.txt')
#: a symbolic link to a folder among the output files
os.symlink(PROJECT, 'folder')
#: list the project
os.listdir(PROJECT); escaped('listed')
#: list the state folder
os.listdir(PROJECT + '/.toolgate'); escaped('listed')
#: list other scratch folders
os.listdir('..'); escaped('listed')
#: read the configuration
print(open(PROJECT + '/toolgate.yaml').read()); escaped('read')
#: read shadow
open('/etc/shadow').read(); escaped('read')
#: list the home folder
os.listdir(HOME); escaped('listed')
#: list the home folder of root
os.listdir('/root'); escaped('listed')
#: list etc
os.listdir('/etc'); escaped('listed')
#: read the machine id
open('/etc/machine-id').read(); escaped('read')
#: chmod of a file outside
os.chmod(SECRET, 0o777)
#: fchmodat of a file outside
call(nr(268, 53), -100, SECRET.encode(), 0o777)
#: fchmodat2 of a file outside
call(452, -100, SECRET.encode(), 0o777, 0)
#: chmod of a folder outside
os.chmod(PROJECT, 0o777)
#: chown of a file outside
os.chown(SECRET, os.getuid(), os.getgid())
#: lchown of a file outside
os.lchown(SECRET, os.getuid(), os.getgid())
#: utime of a file outside
os.utime(SECRET, (0, 0))
#: utimensat of a folder outside
os.utime(PROJECT, (0, 0))
#: setxattr of a file outside
os.setxattr(SECRET, 'user.escaped', b'1')
#: removexattr of a file outside
os.removexattr(SECRET, 'user.present')
#: access control list of a file outside
acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *e) for e in [(1, 6, 2**32-1), (2, 6, 1), (4, 0, 2**32-1), (16, 6, 2**32-1), (32, 0, 2**32-1)])
os.setxattr(SECRET, 'system.posix_acl_access', acl)
#: chmod of a readable file
os.chmod(SHARED, 0o777)
#: fchmod of a readable file
os.fchmod(os.open(SHARED, os.O_RDONLY), 0o777)
#: fchown of a readable file
os.fchown(os.open(SHARED, os.O_RDONLY), os.getuid(), os.getgid())
#: futimens of a readable file
os.utime(os.open(SHARED, os.O_RDONLY), (0, 0))
#: fsetxattr of a readable file
os.setxattr(os.open(SHARED, os.O_RDONLY), 'user.escaped', b'1')
#: file attributes of a readable file
fcntl.ioctl(os.open(SHARED, os.O_RDONLY), 0x40086602, struct.pack('l', 0x80))
#: lease on a readable file
fcntl.fcntl(os.open(SHARED, os.O_RDONLY), 1024, fcntl.F_RDLCK)
#: write to a readable file
open(SHARED, 'w').write('escaped')
#: truncate a readable file
os.truncate(SHARED, 0)
#: write below a readable folder
open(os.path.dirname(SHARED) + '/new', 'w').write('escaped')
#: chmod of a system program
os.chmod('/usr/bin/env', 0o777)
#: utime of a system program
os.utime('/usr/bin/env', (0, 0))
#: truncate a file outside
os.truncate(SECRET, 0)
#: append to a file outside
open(SECRET, 'a').write('escaped')
#: write to a file outside through a link
os.symlink(SECRET, 'link'); open('link', 'w').write('escaped')
#: rename over a file outside
open('mine', 'w').write('escaped'); os.rename('mine', SECRET)
#: rename a file to the outside
open('mine', 'w').write('escaped'); os.rename('mine', PROJECT + '/mine')
#: hard link to the outside
open('mine', 'w').write('escaped'); os.link('mine', PROJECT + '/mine')
#: exchange with a file outside
open('mine', 'w').write('escaped'); call(nr(316, 276), -100, b'mine', -100, SECRET.encode(), 2)
#: remove a file outside
os.remove(SECRET)
#: create a folder outside
os.mkdir(PROJECT + '/new')
#: create a link outside
os.symlink('/etc/passwd', PROJECT + '/new')
#: create a named pipe outside
os.mkfifo(PROJECT + '/new')
#: replace its own scratch folder
os.rename('.', '../other'); escaped('renamed')
#: watch a file outside
fd = call(nr(294, 26), 0); call(nr(254, 27), fd, SECRET.encode(), 2); escaped('watched')
#: watch all files
call(nr(300, 262), 0, 0); escaped('watched')
#: open by handle
handle = struct.pack('Ii', 128, 0) + bytes(128); mount = bytes(4)
call(nr(303, 264), -100, b'/usr', ctypes.create_string_buffer(handle), ctypes.create_string_buffer(mount), 0); escaped('named')
#: open by a made up handle
call(nr(304, 265), os.open('/usr', os.O_RDONLY), struct.pack('Iiii', 8, 1, 2, 0), 0); escaped('open')
#: character device
os.mknod('mem', 0o666 | 0o020000, os.makedev(1, 1)); escaped('created')
#: block device
os.mknod('disk', 0o666 | 0o060000, os.makedev(254, 0)); escaped('created')
#: memory device
open('/dev/mem', 'rb'); escaped('open')
#: kernel log device
open('/dev/kmsg', 'w'); escaped('open')
#: disk devices
for name in ('vda', 'sda', 'nvme0n1', 'loop0', 'mapper/control'):
    try: open('/dev/' + name, 'rb')
    except OSError: pass
    else: escaped(name)
#: shared memory folder
open('/dev/shm/escaped-' + TOKEN, 'w').write('escaped')
#: write to tmp
open('/tmp/escaped-' + TOKEN, 'w').write('escaped')
#: write to a system folder
open('/usr/escaped-' + TOKEN, 'w').write('escaped')
#: preload a library into the next run
open('/etc/ld.so.preload', 'a').write('')
escaped('open')
#: change the Python of the next run
import site
open(os.path.join(os.path.dirname(os.__file__), 'sitecustomize.py'), 'w').write('')
escaped('written')
#: replace the executable of the gateway
open(EXECUTABLE, 'r+b'); escaped('open')
#: replace the executable of the parent
open(f'/proc/{PARENT}/exe', 'r+b'); escaped('open')
#: core pattern
open('/proc/sys/kernel/core_pattern', 'w').write('|/bin/sh'); escaped('written')
#: host name through proc
open('/proc/sys/kernel/hostname', 'w').write('escaped'); escaped('written')
#: system request trigger
open('/proc/sysrq-trigger', 'w'); escaped('open')
#: kernel settings
open('/proc/sys/vm/drop_caches', 'w'); escaped('open')
#: control groups
os.mkdir('/sys/fs/cgroup/escaped-' + TOKEN); escaped('created')
#: control group of the parent
open('/sys/fs/cgroup/cgroup.procs', 'w').write(str(os.getpid())); escaped('written')
#: kernel modules folder
os.listdir('/sys/module'); escaped('listed')
#: own process folder
print(open('/proc/self/environ').read()); escaped('read')
#: processes of the machine
os.listdir('/proc'); escaped('listed')

#: mount a file system
call(nr(165, 40), b'tmpfs', b'.', b'tmpfs', 0, 0); escaped('mounted')
#: bind mount
call(nr(165, 40), b'/', b'.', 0, 4096, 0); escaped('mounted')
#: remount the root
call(nr(165, 40), 0, b'/usr', 0, 32 | 4096, 0); escaped('mounted')
#: unmount
call(nr(166, 39), b'.', 2); escaped('unmounted')
#: user namespace
call(nr(272, 97), 0x10000000); escaped('created')
#: mount namespace
call(nr(272, 97), 0x00020000); escaped('created')
#: network namespace
call(nr(272, 97), 0x40000000); escaped('created')
#: clone with a user namespace
pid = call(nr(56, 220), 0x10000000 | 17, 0, 0, 0, 0)
if pid == 0: os._exit(0)
escaped('created')
#: clone with a mount namespace
pid = call(nr(56, 220), 0x00020000 | 17, 0, 0, 0, 0)
if pid == 0: os._exit(0)
escaped('created')
#: clone as a sibling
pid = call(nr(56, 220), 0x8000 | 17, 0, 0, 0, 0)
if pid == 0: os._exit(0)
escaped('created')
#: clone3 with a user namespace
pid = call(435, struct.pack('11Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88)
if pid == 0: os._exit(0)
escaped('created')
#: enter the namespaces of another process
call(nr(308, 268), os.pidfd_open(VICTIM), 0x00020000); escaped('entered')
#: enter the namespaces of the parent
call(nr(308, 268), os.pidfd_open(PARENT), 0x00020000 | 0x10000000); escaped('entered')
#: pivot_root
call(nr(155, 41), b'.', b'.'); escaped('changed')
#: chroot
os.mkdir('d'); os.chroot('d'); escaped('changed')
#: fsopen
call(430, b'tmpfs', 0); escaped('open')
#: open_tree
call(428, -100, b'/', 1); escaped('open')
#: move_mount
call(429, -100, b'/usr', -100, b'.', 0); escaped('moved')
#: mount_setattr
call(442, -100, b'.', 0, struct.pack('QQQQ', 0, 1, 0, 0), 32); escaped('changed')
#: bpf
call(nr(321, 280), 0, struct.pack('IIII', 1, 4, 4, 1) + bytes(112), 128); escaped('created')
#: io_uring
call(425, 8, ctypes.create_string_buffer(120)); escaped('created')
#: keyctl
call(nr(250, 219), 0, -3, 1); escaped('read')
#: add_key
call(nr(248, 217), b'user', b'escaped', b'x', 1, -4); escaped('added')
#: request_key
call(nr(249, 218), b'user', b'escaped', 0, -4); escaped('requested')
#: perf_event_open
call(nr(298, 241), struct.pack('IIQ', 1, 112, 0) + bytes(96), 0, -1, -1, 0); escaped('open')
#: userfaultfd
call(nr(323, 282), 1); escaped('created')
#: swapon
open('swap', 'wb').write(bytes(1 << 16)); call(nr(167, 224), b'swap', 0); escaped('on')
#: reboot
call(nr(169, 142), 0xfee1dead, 672274793, 0, 0); escaped('changed')
#: set the time
call(nr(164, 170), struct.pack('ll', int(time.time()), 0), 0); escaped('set')
#: set the clock
time.clock_settime(time.CLOCK_REALTIME, time.time()); escaped('set')
#: adjust the clock
call(nr(305, 266), 0, ctypes.create_string_buffer(struct.pack('I', 0x8000) + bytes(256))); escaped('adjusted')
#: set the host name
call(nr(170, 161), b'escaped', 7); escaped('set')
#: set the domain name
call(nr(171, 162), b'escaped', 7); escaped('set')
#: load a module
call(nr(313, 273), os.open('.main.py', os.O_RDONLY), b'', 0); escaped('loaded')
#: unload a module
call(nr(176, 106), b'escaped', 0); escaped('unloaded')
#: load a kernel
call(nr(246, 104), 0, 0, 0, 0); escaped('loaded')
#: ports of the machine
call(nr(172, 1000), 3); escaped('granted')
#: process accounting
call(nr(163, 89), 0); escaped('off')
#: quotas
call(nr(179, 60), 0x800001 << 8, 0, 0, 0); escaped('synced')
#: kernel log
call(nr(103, 116), 3, ctypes.create_string_buffer(100), 100); escaped('read')
#: flush all disks
call(nr(306, 267), os.open('/usr', os.O_RDONLY)); escaped('flushed')
#: modify_ldt
call(nr(154, 1000), 0, ctypes.create_string_buffer(100), 100); escaped('read')
#: vhangup
call(nr(153, 58)); escaped('done')
#: memory file
os.memfd_create('x'); escaped('created')
#: secret memory
call(447, 0); escaped('created')
#: second filter with a listener
call(nr(317, 277), 1, 8, struct.pack('HQ', 0, 0)); escaped('installed')
#: own memory map
libc.prctl(35, 1, 0x400000, 0, 0) == 0 and escaped('changed')
#: allow tracing by others
libc.prctl(0x59616d61, ctypes.c_long(-1), 0, 0, 0) == 0 and escaped('allowed')
#: hide from limits
libc.prctl(4, 0, 0, 0, 0) == 0 and escaped('hidden')
#: become a subreaper
libc.prctl(36, 1, 0, 0, 0) == 0 and escaped('set')
#: calls under their second number
for number in (41, 101, 165, 272, 321):
    if libc.syscall(ctypes.c_long(0x40000000 | number), 1, 1, 0, 0, 0) >= 0: escaped(number)
#: calls of 32-bit programs
if X:
    pid = os.fork()
    if pid == 0:
        page = mmap.mmap(-1, 4096, prot=7)
        page.write(bytes.fromhex('53b814000000cd805bc3'))
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        ctypes.CFUNCTYPE(ctypes.c_int)(address)()
        os._exit(42)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42: escaped('called')
#: capabilities
data = ctypes.create_string_buffer(24)
call(nr(125, 90), ctypes.create_string_buffer(struct.pack('II', 0x20080522, 0)), data)
if any(data.raw): escaped(data.raw)
#: bounding set of root
if os.getuid() == 0 and any(libc.prctl(23, n, 0, 0, 0) == 1 for n in range(41)): escaped('not empty')
#: new privileges
if libc.prctl(39, 0, 0, 0, 0) != 1: escaped('allowed')
#: regain capabilities
call(nr(126, 91), struct.pack('II', 0x20080522, 0), struct.pack('6I', 1, 1, 1, 0, 0, 0)); escaped('regained')
#: another user
if os.getuid() != 0: os.setuid(0); escaped('root')
os.setuid(1); escaped('changed')
#: other groups
os.setgroups([]); escaped('changed')
#: a setuid program
out = subprocess.run(['sh', '-c', 'umask 0; cp /usr/bin/id i; chmod 4777 i; ./i -u'], capture_output=True, text=True).stdout
if out.strip() != str(os.getuid()): escaped(out)

#: System V shared memory
call(nr(29, 194), KEY, 4096, 0o1600)
#: System V semaphores
call(nr(64, 190), KEY, 1, 0o1600)
#: System V message queue
call(nr(68, 186), KEY, 0o1600)
#: POSIX message queue
call(nr(240, 180), b'escaped-' + TOKEN.encode(), 0o102, 0o600, 0); escaped('created')
#: background process
subprocess.Popen(['setsid', 'sleep', '3000'], stdin=-3, stdout=-3, stderr=-3)
#: daemon
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3): os.close(fd)
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        time.sleep(3000)
    os._exit(0)
os.wait()

#: TCP over IPv4
socket.create_connection(('127.0.0.1', PORT)); escaped('connected')
#: TCP over IPv6
socket.socket(socket.AF_INET6); escaped('created')
#: UDP
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT)); escaped('sent')
#: raw socket
socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); escaped('created')
#: multipath TCP
socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); escaped('created')
#: Unix socket
socket.socket(socket.AF_UNIX).connect(SOCKET); escaped('connected')
#: abstract Unix socket
socket.socket(socket.AF_UNIX).connect('\0' + TOKEN); escaped('connected')
#: netlink socket
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW); escaped('created')
#: packet socket
socket.socket(socket.AF_PACKET, socket.SOCK_RAW); escaped('created')
#: vsock socket
socket.socket(40, socket.SOCK_STREAM); escaped('created')
#: cryptography socket
socket.socket(38, socket.SOCK_SEQPACKET); escaped('created')
#: every other family
for family in range(1, 46):
    for kind in (1, 2, 3, 5):
        if libc.socket(family, kind, 0) >= 0: escaped((family, kind))
#: socket pair of another family
a, b = ctypes.c_int(), ctypes.c_int()
call(nr(53, 199), 30, 1, 0, ctypes.create_string_buffer(8)); escaped('created')
#: datagram to a Unix socket
socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'escaped', SOCKET + '.datagram'); escaped('sent')
#: datagram to an abstract Unix socket
socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'escaped', '\0' + TOKEN + '.datagram'); escaped('sent')
#: reconnect a socket pair
socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].connect(SOCKET + '.datagram'); escaped('connected')
#: hide a descriptor in a socket
a, b = socket.socketpair()
a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack('i', 0))]); escaped('sent')
#: socket filter
socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, 26, struct.pack('HxxxxxxP', 0, 0)); escaped('attached')
#: inherited descriptors
for fd in range(3, 256):
    try: os.fstat(fd)
    except OSError: pass
    else: escaped(fd)
#: environment
print(dict(os.environ))
#: environment of the interpreter
if set(os.environ) - {'PATH', 'HOME', 'LANG', 'LC_ALL', 'LC_CTYPE', 'TZ', 'TMPDIR', 'USER', 'PYTHONIOENCODING', 'PWD', 'SHLVL', '_'}: escaped(sorted(os.environ))
#: terminal input
for fd in range(3): fcntl.ioctl(fd, 0x5412, b'x'); escaped('typed')
#: console input
fcntl.ioctl(0, 0x541c, b'\x03'); escaped('typed')
#: controlling terminal
open('/dev/tty'); escaped('open')
#: pseudo terminals
os.openpty(); escaped('open')
#: core dump
resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20)); escaped('raised')
