// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// step is what one command took.
type step struct {
	Seconds   float64 `json:"seconds"`
	Processor float64 `json:"processorSeconds"`
	Memory    int64   `json:"peakKiB"` // of the largest process
	Missing   int     `json:"missing"` // settings that are not in effect after it
}

// life is one run of one peer.
type life struct {
	Peer    string `json:"peer"`
	Version string `json:"version"`
	Apply   step   `json:"apply"`
	Again   step   `json:"again"`
	Mend    step   `json:"mend"`
	Back    *step  `json:"back,omitempty"`
	Killed  *kill  `json:"killed,omitempty"` // then Apply is the next run, Again the one that an operator asks for after it
}

// kill is what a kill left.
type kill struct {
	After   float64 `json:"afterSeconds"`
	Missing int     `json:"missing"` // settings that were not in effect then
	Torn    int     `json:"torn"`    // files that were there with other content than they are to have
}

// live makes dir the root of a host that belongs to the namespaces this process runs in, and
// has a peer live on it. dir has the root's files and, below /peer, what the peer brings.
func live(p peer, dir string, w wanted, kill time.Duration) (l life, err error) {
	l.Peer = p.name
	if err := makeHost(dir); err != nil {
		return l, err
	}
	// Puppet takes a host for one of systemd by the name of its first process.
	if err := os.WriteFile("/proc/self/comm", []byte("systemd"), 0o644); err != nil {
		return l, err
	}
	version, err := inRoot(dir, p.version).Output()
	if err != nil {
		return l, fmt.Errorf("%s: %w", p.version, err)
	}
	l.Version = string(version)
	if p.ready != "" {
		if out, err := inRoot(dir, p.ready).CombinedOutput(); err != nil {
			return l, fmt.Errorf("%s: %w: %s", p.ready, err, out)
		}
	}
	total := w.count()
	if before := len(w.missing(dir)); before != total {
		return l, fmt.Errorf("%d of %d settings are in effect before anything is applied", total-before, total)
	}
	if kill > 0 {
		if l.Killed, err = cut(p.apply, dir, w, kill); err != nil {
			return l, err
		}
		if l.Apply, err = measure(p.apply, dir, w); p.retry == "" {
			return l, err
		}
		l.Again, err = measure(p.retry, dir, w) // it may have failed, and says so
		return l, err
	}
	if l.Apply, err = measure(p.apply, dir, w); err != nil {
		return l, err
	}
	if l.Again, err = measure(p.apply, dir, w); err != nil {
		return l, err
	}
	drift := w.Sysctls[0]
	if err := errors.Join(os.WriteFile("/proc/sys/net/ipv4/conf/peer0/"+filepath.Ext(drift.Name)[1:], []byte("0\n"), 0o644),
		os.WriteFile(filepath.Join(dir, w.Files[0].Name), []byte("by hand\n"), 0o644)); err != nil {
		return l, err
	}
	if l.Mend, err = measure(p.apply, dir, w); err != nil {
		return l, err
	}
	if p.back != "" {
		var back step
		if back, err = measure(p.back, dir, w); err != nil {
			return l, err
		}
		l.Back = &back
	}
	return l, nil
}

// makeHost mounts what a program expects of a system, and makes the interfaces.
func makeHost(dir string) error {
	script := `set -e
mount --make-rprivate /
hostname host
ip link set lo up
for n in $(seq 0 ` + fmt.Sprint(cards-1) + `); do ip link add peer$n type veth peer name other$n; done
cd "$1"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount -t tmpfs tmpfs dev
for n in null zero full random urandom tty; do : >dev/$n; mount --bind /dev/$n dev/$n; done
mkdir dev/shm dev/pts
ln -s /proc/self/fd dev/fd
echo 0123456789abcdef0123456789abcdef >etc/machine-id
`
	out, err := exec.Command("sh", "-c", script, "sh", dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make a host: %w: %s", err, out)
	}
	return nil
}

// inRoot is a command in the root at dir.
func inRoot(dir, command string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir}
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/lib/systemd:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
	return cmd
}

// measure runs a command in the root at dir; what it took is there also where it failed.
func measure(command, dir string, w wanted) (s step, err error) {
	cmd := inRoot(dir, command)
	var out limited
	cmd.Stdout, cmd.Stderr = &out, &out
	begun := time.Now()
	err = cmd.Run()
	s.Seconds = time.Since(begun).Seconds()
	if cmd.ProcessState != nil {
		s.Processor = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
		s.Memory = cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", command, err, out)
	}
	s.Missing = len(w.missing(dir))
	return s, err
}

// cut runs a command in the root at dir and kills all that it started after a time.
func cut(command, dir string, w wanted, after time.Duration) (*kill, error) {
	cmd := inRoot(dir, command)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	time.Sleep(after)
	// This is the first process of its host: only what runs there dies.
	if os.Getpid() != 1 {
		return nil, errors.New("this is not the first process of a host")
	}
	if err := syscall.Kill(-1, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) { // it was faster
		return nil, err
	}
	_ = cmd.Wait() // it was killed
	return &kill{after.Seconds(), len(w.missing(dir)), w.torn(dir)}, nil
}

// limited keeps the last of what a command prints.
type limited []byte

func (l *limited) Write(p []byte) (int, error) {
	*l = append(*l, p...)
	*l = (*l)[max(0, len(*l)-4096):]
	return len(p), nil
}

// host starts this program in new namespaces, where it calls live, and returns what that
// measured.
func host(p peer, dir string, kill time.Duration) (l life, err error) {
	const patience = time.Hour // the slowest takes minutes; one that hangs is to be found
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--net", "--uts", "--fork", "--kill-child", filepath.Join(programs,
		"peers"), "-host", dir, "-kill", kill.String(), p.name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return l, fmt.Errorf("%s: %w", p.name, err)
	}
	return l, json.Unmarshal(out, &l)
}
