// SPDX-License-Identifier: Apache-2.0

// Package configcheck asks the programs that read files of /etc whether they take a text:
// visudo(8), sshd(8), nft(8) and, where a layer is built, systemd-analyze(1). A file of sudoers
// with a fault locks everybody out of sudo.
//
// [Ask] asks on a node before a file is written, also into a root that nobody has entered yet. It
// changes nothing but for what goes again: a directory in /run, and mounts in another root. Where
// the root has no such program, or the program fails for another reason than the text, nothing is
// said. One that does not start or does not end has not consented. The builder runs [Question] by
// itself.
package configcheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/safepath"
)

// checkers are the programs by the paths that they are asked about. What they are asked about
// comes last.
var checkers = []checker{
	{[]string{"/etc/sudoers", "/etc/sudoers.d/*"}, []string{"/usr/sbin/visudo", "-c", "-f"}, nil, false},
	{[]string{"/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d/*.conf"}, []string{"/usr/sbin/sshd", "-t", "-f"}, nil, false},
	{[]string{"/etc/nftables.conf", "/etc/nftables.d/*.nft"}, []string{"/usr/sbin/nft", "-c", "-f"}, ofSyntax, false},
	{[]string{unitDir + "*.*", unitDir + "*.*.d/*.conf"}, []string{"/usr/bin/systemd-analyze", "verify", "--man=no",
		"--recursive-errors=no"}, ofUnit, true},
}

type checker struct {
	paths  []string // patterns of path.Match
	argv   []string
	counts func(name, text, line string) bool // whether a line is of the text; nil is each that names it
	build  bool                               // asked where a layer is built, and not on nodes
}

const unitDir = "/etc/systemd/system/"

// ofSyntax: tables, sets, interfaces and other files may come later.
func ofSyntax(name, _, line string) bool {
	return strings.HasPrefix(line, name+":") && strings.Contains(line, "Error: syntax error")
}

var notThere = regexp.MustCompile(`: Command (\S+) is not executable`)

// ofUnit: a program that is not there is a fault of the text where nothing can bring it, since
// the layer has the directory, and the text does not ask for it first.
func ofUnit(name, text, line string) bool {
	if m := notThere.FindStringSubmatch(line); m != nil {
		first := regexp.MustCompile(`(?m)^(Condition|Assert)[A-Za-z]+=.*` + regexp.QuoteMeta(m[1]) + `$`)
		return strings.HasPrefix(m[1], "/usr/") && !strings.HasPrefix(m[1], "/usr/local/") && !first.MatchString(text)
	}
	return (strings.HasPrefix(line, name+":") || strings.HasPrefix(line, unit(name)+": ")) && !strings.Contains(line, " not loaded, ")
}

// unit is the name of the unit that a path is of.
func unit(name string) string {
	name, _, _ = strings.Cut(strings.TrimPrefix(name, unitDir), "/")
	return strings.TrimSuffix(name, ".d")
}

// patience is how long a program may take, and most how much of what it says is read, in bytes.
const (
	patience = 10 * time.Second
	most     = 4 << 10
)

// Refused is the error of a text that its program does not take.
type Refused struct{ Path, Text, Program, Said string }

func (r *Refused) Error() string { return r.Program + " does not take it: " + r.Said }

// Question returns the program, with arguments, that is asked about a text which stands at the
// path; nil of a path that none is asked about. Verdict judges its answer: nil, or
// [*Refused], when it ended badly.
func Question(name, text string) (argv []string, verdict func(said string) error) {
	c := of(name)
	if c == nil {
		return nil, nil
	}
	last := name
	if c.build {
		last = unit(name)
	}
	return append(c.argv[:len(c.argv):len(c.argv)], last), func(said string) error { return c.verdict(name, text, said) }
}

// verdict is of what a program said of the text of a path. It may lack something else, as sshd
// does its keys and its directory before its first start.
func (c *checker) verdict(name, text, said string) error {
	var of []string
	for line := range strings.Lines(said) {
		if c.counts == nil && strings.Contains(said, name) || c.counts != nil && c.counts(name, text, line) {
			of = append(of, strings.Fields(line)...)
		}
	}
	if len(of) == 0 {
		return nil
	}
	words := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.Join(of, " "))
	return &Refused{name, text, c.argv[0], fmt.Sprintf("%.300s", words)}
}

// Ask asks the program of a path, one of the root, about a text that is to stand there. The error
// is [*Refused], or of a question that could not be asked; it is nil of a path that no program of
// the root is asked about. In another root than / the copy of the text is in memory that is never
// swapped, so the text may be a secret: then see [Hide].
func Ask(ctx context.Context, root, name, text string) (err error) {
	c := on(root, name)
	if c == nil {
		return nil
	}
	if root != "/" {
		end, err := furnish(root)
		if err != nil {
			return fmt.Errorf("ask %s about %s: %w", c.argv[0], name, err)
		}
		defer end()
	}
	dir, err := os.MkdirTemp(filepath.Join(root, "run"), "caisson-check-")
	if err != nil {
		return fmt.Errorf("ask %s about %s: %w", c.argv[0], name, err)
	}
	defer os.RemoveAll(dir) // a directory in memory, which holds what is written next
	file := filepath.Join(dir, "text")
	if err := os.WriteFile(file, []byte(text), 0o440); err != nil {
		return fmt.Errorf("ask %s about %s: %w", c.argv[0], name, err)
	}
	return c.ask(ctx, root, name, path.Join("/run", filepath.Base(dir), "text"), text)
}

// AskSecret is [Ask] about what a file of this machine holds, if it is there: it is copied nowhere,
// and the error has no word of it.
func AskSecret(ctx context.Context, name, file string) error {
	c := on("/", name)
	if c == nil {
		return nil
	}
	if _, err := os.Stat(file); err != nil {
		return nil // there is nothing to write either
	}
	return Hide(c.ask(ctx, "/", name, file, ""))
}

// Hide returns the error of a question about a secret, without what the program said of it.
func Hide(err error) error {
	if refused := new(Refused); errors.As(err, &refused) {
		return &Refused{refused.Path, "", refused.Program, "what it says is not shown, since the file is a secret"}
	}
	return err
}

// ask runs the program about a file of the root.
func (c *checker) ask(ctx context.Context, root, name, within, text string) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	said := &head{}
	cmd := exec.CommandContext(limited, c.argv[0], append(c.argv[1:len(c.argv):len(c.argv)], within)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}, said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if root != "/" {
		cmd.SysProcAttr.Chroot = root
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	switch err := cmd.Run(); {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		return nil
	case limited.Err() != nil:
		return fmt.Errorf("ask %s about %s: no answer within %v", c.argv[0], name, patience)
	case cmd.ProcessState == nil: // it was not started
		return fmt.Errorf("ask %s about %s: %w", c.argv[0], name, err)
	}
	return c.verdict(name, text, strings.ReplaceAll(said.String(), within, name))
}

// on is the checker of a path whose program a node's root has, or nil.
func on(root, name string) *checker {
	c := of(name)
	if c == nil || c.build {
		return nil
	}
	if _, err := os.Stat(filepath.Join(root, c.argv[0])); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return c
}

// of is the checker of a path, nil of one that none reads.
func of(name string) *checker {
	for i, c := range checkers {
		for _, pattern := range c.paths {
			if match, err := path.Match(pattern, name); err == nil && match {
				return &checkers[i]
			}
		}
	}
	return nil
}

// head keeps the beginning of what is written.
type head struct{ bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	_, _ = h.Buffer.Write(p[:min(len(p), most-min(h.Len(), most))]) // it never fails
	return len(p), nil
}

// furnish gives programs of a root that nobody has entered yet what they look for: /dev, without
// which sshd(8) ends before it reads anything, and as /run memory that is never swapped, for what
// they are asked about. Both go with end, or with the root.
func furnish(root string) (end func(), err error) {
	var done []string
	end = func() {
		for _, at := range done {
			_ = unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // it was mounted just now
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	at, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	dir := safepath.Dir{File: at}
	defer dir.Close() // only held
	for _, m := range []struct {
		source, kind, on string
		flags            uintptr
	}{
		{"/dev", "", "dev", unix.MS_BIND},
		{"ramfs", "ramfs", "run", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	} {
		target, err := dir.Below(m.on) // no link leads elsewhere
		if err != nil {
			return nil, err
		}
		err = unix.Mount(m.source, safepath.Name(int(target.Fd())), m.kind, m.flags, "")
		if err := target.Close(); err != nil { // only held
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("mount %s at %s: %w", m.source, filepath.Join(root, m.on), err)
		}
		done = append(done, filepath.Join(root, m.on))
	}
	return end, nil
}
