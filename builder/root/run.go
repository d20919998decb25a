// SPDX-License-Identifier: Apache-2.0

package root

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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

	without string // steps of [Enter], by comma, that a test takes out
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

// Said turns a program's bad end into the last line of what it said.
func Said(err error) error {
	if exit, ok := errors.AsType[*ExitError](err); ok && exit.Output != "" {
		return errors.New(exit.Output[strings.LastIndexByte(exit.Output, '\n')+1:])
	}
	return err
}

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// env is all that a build's programs see of the outside: none of the user's
// locale, time zone, home or proxy settings reaches what they produce.
var env = []string{
	"PATH=" + searchPath,
	"LC_ALL=C.UTF-8", "TZ=UTC", "HOME=/root", "USER=root", "LOGNAME=root", "TERM=dumb", "SHELL=/bin/sh",
	"DEBIAN_FRONTEND=noninteractive", "DEBCONF_NONINTERACTIVE_SEEN=true", "INITRD=No",
}

// Bind is where [Root.RunWith] shows a host directory inside the root.
const Bind = "/run/caisson-bind"

// Run runs a program of the root inside it, with mounts, processes, IPC, host
// name and network (there is none) of its own.
func (r *Root) Run(ctx context.Context, c Command) error { return r.RunWith(ctx, "", c) }

// RunWith is [Root.Run] with the host directory bind shown read-only at [Bind].
func (r *Root) RunWith(ctx context.Context, bind string, c Command) error {
	scratch, err := os.MkdirTemp(r.Work, "run-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch) // the next build empties Work
	p := plan{Args: c.Args, Host: cmp.Or(r.Host, "localhost"), Mount: filepath.Join(scratch, "root"), Bind: bind, Without: c.without}
	work := filepath.Join(scratch, "work")
	upper, made := r.Upper, []string{p.Mount, work}
	if upper == "" { // a reader's changes are thrown away
		upper = filepath.Join(scratch, "upper")
		made = append(made, upper)
	}
	for _, dir := range made {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	for _, p := range append([]string{upper, work}, r.Lowers...) {
		if strings.ContainsAny(p, `:,\`) {
			return fmt.Errorf("directory %q: a colon, comma or backslash in its name cannot be mounted", p)
		}
	}
	if len(r.Lowers) == 0 {
		p.Tree = upper
	} else {
		// volatile: dpkg waits for the disk at each step, for a tree that is thrown away
		// when the build is cut. Who keeps it syncs it whole.
		p.Overlay = fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=nofollow,metacopy=off,index=off,xino=off,volatile",
			strings.Join(r.Lowers, ":"), upper, work)
		if userNamespace() {
			p.Overlay += ",userxattr"
		}
	}
	p.Env = append(slices.Clone(env), c.Env...)
	if r.Epoch != 0 {
		p.Env = append(p.Env, fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.Epoch))
	}
	return start(ctx, p, c)
}

// Isolated runs a program of the host on files of packages. It sees the host's
// tree read-only but for the directories writable, the first of which is its
// TMPDIR, and it has no network.
func Isolated(ctx context.Context, writable []string, c Command) error {
	all := slices.Concat(env, []string{"TMPDIR=" + writable[0]}, c.Env)
	return start(ctx, plan{Args: c.Args, Env: all, Writable: writable, Without: c.without}, c)
}

// start runs this program's [Enter] in new namespaces, with a plan.
func start(ctx context.Context, p plan, c Command) error {
	if os.Args[0] == enterName {
		return errors.New("package root: main does not call Enter first")
	}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	planOut, planIn, err := os.Pipe()
	if err != nil {
		return err
	}
	defer planOut.Close() // read by the child
	defer planIn.Close()  // closed below, in time for the child
	reportOut, reportIn, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reportOut.Close() // only read
	defer reportIn.Close()  // the child's

	// The kernel sends the death signal when the parent *thread* ends, so this
	// goroutine must keep its thread until the child is gone.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{enterName}
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stdin = c.Stdin
	cmd.ExtraFiles = []*os.File{planOut, reportIn}
	out := &lines{each: c.Line}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: namespaces(c.without),
		Pdeathsig:  syscall.SIGKILL,       // of process 1 in there: the kernel then kills the rest
		Setsid:     true,                  // no terminal to type on
		Credential: &syscall.Credential{}, // nor the user's supplementary groups
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	planOut.Close() // or a child that died would leave the next line waiting
	_, writeErr := planIn.Write(data)
	planIn.Close()   // a child that died is reported by Wait
	reportIn.Close() // so that the end of the child is the end of the report
	report, readErr := io.ReadAll(io.LimitReader(reportOut, 4<<10))
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case len(report) > 0:
		return fmt.Errorf("prepare to run %s: %s", filepath.Base(c.Args[0]), report)
	case err != nil:
		return &ExitError{Args: c.Args, Err: err, Output: string(bytes.TrimSpace(out.all))}
	}
	return errors.Join(writeErr, readErr)
}

// namespaces are the flags of what a program has of its own, but for the one
// that a test takes out.
func namespaces(without string) (flags uintptr) {
	for name, flag := range map[string]uintptr{"mounts": unix.CLONE_NEWNS, "processes": unix.CLONE_NEWPID, "IPC": unix.CLONE_NEWIPC,
		"host name": unix.CLONE_NEWUTS, "network": unix.CLONE_NEWNET} {
		if name != without {
			flags |= flag
		}
	}
	return flags
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
