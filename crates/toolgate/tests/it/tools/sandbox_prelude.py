import ctypes, fcntl, mmap, os, resource, signal, socket, struct, subprocess, sys, time

libc = ctypes.CDLL(None, use_errno=True)
X = os.uname().machine == 'x86_64'


def nr(x86, arm):
    return x86 if X else arm


def call(number, *args):
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = libc.syscall(ctypes.c_long(number), *args)
    if result < 0:
        raise OSError(ctypes.get_errno(), 'refused')
    return result


PARENT = os.getppid()


def run(name, attempt):
    """Runs an attempt in a process of its own, so that it cannot disturb the next one."""
    global escaped

    def escaped(what):
        print('ESCAPED', name, what)

    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            attempt()
        except (OSError, ValueError) as error:
            # Python reports limits above the hard limit as ValueError.
            print('refused:', name, error)
        except BaseException as error:
            print('BROKEN', name, repr(error))
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    print('tried:', name)
