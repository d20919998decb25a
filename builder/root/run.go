// SPDX-License-Identifier: Apache-2.0

package root

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Command is one program to run, in a root ([Root.Run]) or on the host beside
// one ([Isolated]).
type Command struct {
	Args  []string
	Env   []string  // "K=V", added to a minimal environment
	Stdin io.Reader // nil is empty
	Line  func(string)
	Dir   string // host folder, for Isolated only
}

// ExitError is a program that ended badly, with the end of what it said.
type ExitError struct {
	Args   []string
	Err    error
	Output string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("%s: %v", filepath.Base(e.Args[0]), e.Err)
}
func (e *ExitError) Unwrap() error { return e.Err }

// env is all that a build's programs see of the outside: nothing of the user's
// locale, time zone, home or proxy settings reaches what they produce.
var env = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"LC_ALL=C.UTF-8", "TZ=UTC", "HOME=/root", "USER=root", "LOGNAME=root", "TERM=dumb", "SHELL=/bin/sh",
	"DEBIAN_FRONTEND=noninteractive", "DEBCONF_NONINTERACTIVE_SEEN=true", "INITRD=No",
}

// enter is the first program in the new namespaces. It mounts what a package's
// scripts expect to see, and nothing of the host.
const enter = `
set -eu
umask 022
mount --make-rprivate /
for null in ,uuid=null ,uuid=off ""; do
	if mount -t overlay caisson -o "$OPTIONS$null" "$MERGED" 2>"$WORK/mount.err"; then mounted=1; break; fi
done
[ -n "${mounted:-}" ] || { cat "$WORK/mount.err" >&2; exit 125; }
unset OPTIONS WORK
mount -t proc -o nosuid,noexec,nodev proc "$MERGED/proc"
mount -t sysfs -o ro,nosuid,noexec,nodev sysfs "$MERGED/sys"
mount -t tmpfs -o mode=755,size=64k,nosuid dev "$MERGED/dev"
for n in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
	IFS=: read -r name major minor <<-X
	$n
	X
	mknod -m 666 "$MERGED/dev/$name" c "$major" "$minor"
done
ln -s /proc/self/fd "$MERGED/dev/fd"
ln -s fd/0 "$MERGED/dev/stdin"; ln -s fd/1 "$MERGED/dev/stdout"; ln -s fd/2 "$MERGED/dev/stderr"
mkdir "$MERGED/dev/shm" "$MERGED/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev shm "$MERGED/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$MERGED/dev/pts"
ln -s pts/ptmx "$MERGED/dev/ptmx"
mount -t tmpfs -o mode=755,nosuid,nodev run "$MERGED/run"
mkdir -m 1777 "$MERGED/run/lock"
mount -t tmpfs -o mode=1777,nosuid,nodev tmp "$MERGED/tmp"
if [ -n "${BIND:-}" ]; then mkdir "$MERGED/run/caisson-bind"; mount --bind -o ro "$BIND" "$MERGED/run/caisson-bind"; fi
hostname localhost
into=$MERGED
unset MERGED BIND
exec chroot "$into" "$@"
`

// Bind is where [Root.RunWith] shows a host folder inside the root.
const Bind = "/run/caisson-bind"

// Run runs a program of the root inside it: private mounts, processes, IPC,
// host name and network (there is none).
func (r *Root) Run(ctx context.Context, c Command) error { return r.RunWith(ctx, "", c) }

// RunWith is [Root.Run] with the host folder bind shown read-only at [Bind].
func (r *Root) RunWith(ctx context.Context, bind string, c Command) error {
	scratch, err := os.MkdirTemp(r.Work, "run-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch) // the next build clears what is left
	merged, work := filepath.Join(scratch, "root"), filepath.Join(scratch, "work")
	upper := r.Upper
	for _, dir := range []string{merged, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if upper == "" { // a reader's changes are thrown away
		upper = filepath.Join(scratch, "upper")
		if err := os.Mkdir(upper, 0o755); err != nil {
			return err
		}
	}
	for _, p := range append([]string{upper, work}, r.Lowers...) {
		if strings.ContainsAny(p, `:,\`) {
			return fmt.Errorf("folder %q: a colon, comma or backslash in its name cannot be mounted", p)
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=off,metacopy=off,index=off,xino=off",
		strings.Join(r.Lowers, ":"), upper, work)
	run := c
	run.Args = append([]string{"/bin/sh", "-c", enter, "enter"}, c.Args...)
	run.Env = append([]string{"OPTIONS=" + options, "MERGED=" + merged, "WORK=" + scratch, "BIND=" + bind}, c.Env...)
	if r.Epoch != 0 {
		run.Env = append(run.Env, fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.Epoch))
	}
	err = isolate(ctx, run, unix.CLONE_NEWNET)
	if exit, ok := err.(*ExitError); ok {
		exit.Args = c.Args
	}
	return err
}

// Isolated runs a program of the host with mounts and processes of its own.
func Isolated(ctx context.Context, c Command) error {
	run := c
	run.Args = append([]string{"/bin/sh", "-c", `umask 022; exec "$@"`, "isolated"}, c.Args...)
	err := isolate(ctx, run, 0)
	if exit, ok := err.(*ExitError); ok {
		exit.Args = c.Args
	}
	return err
}

func isolate(ctx context.Context, c Command, flags uintptr) error {
	// The kernel sends the death signal when the parent *thread* ends, so this
	// goroutine must keep its thread until the child is gone.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Env = append(append([]string{}, env...), c.Env...)
	cmd.Dir = c.Dir
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	cmd.Stdin = c.Stdin
	out := &lines{each: c.Line}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | flags,
		Pdeathsig:  syscall.SIGKILL, // of process 1 in there: the kernel then kills the rest
	}
	err := cmd.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return &ExitError{Args: c.Args, Err: err, Output: out.tail()}
	}
	return nil
}

// lines passes complete lines on and remembers the last 64 KiB.
type lines struct {
	each func(string)
	part []byte
	all  []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.all = append(l.all, p...)
	if len(l.all) > 128<<10 {
		l.all = append([]byte(nil), l.all[len(l.all)-64<<10:]...)
	}
	if l.each != nil {
		l.part = append(l.part, p...)
		for {
			i := bytes.IndexByte(l.part, '\n')
			if i < 0 {
				break
			}
			l.each(strings.TrimRight(string(l.part[:i]), "\r"))
			l.part = l.part[i+1:]
		}
	}
	return len(p), nil
}

func (l *lines) tail() string { return string(bytes.TrimSpace(l.all)) }
