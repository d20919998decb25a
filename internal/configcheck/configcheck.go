// SPDX-License-Identifier: Apache-2.0

// Package configcheck asks the programs that read files of /etc whether they take a text, before
// it is written: visudo(8), sshd(8), nft(8). A file of sudoers with a fault locks everybody out
// of sudo.
//
// It changes nothing but for a directory in the root's /run that goes again. Where the root has
// no such program, or the program fails for another reason than the text, nothing is said.
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
	"strings"
	"syscall"
	"time"
	"unicode"
)

// checkers are the programs by the paths that they are asked about. The file comes last.
var checkers = []struct {
	paths []string // patterns of path.Match
	argv  []string
}{
	{[]string{"/etc/sudoers", "/etc/sudoers.d/*"}, []string{"/usr/sbin/visudo", "-c", "-f"}},
	{[]string{"/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d/*.conf"}, []string{"/usr/sbin/sshd", "-t", "-f"}},
	{[]string{"/etc/nftables.conf", "/etc/nftables.d/*.nft"}, []string{"/usr/sbin/nft", "-c", "-f"}},
}

// patience is how long a program may take, and most how much of what it says is read, in bytes.
const (
	patience = 10 * time.Second
	most     = 4 << 10
)

// Refused is the error of a text that its program does not take.
type Refused struct{ Program, Said string }

func (r *Refused) Error() string { return r.Program + " does not take it: " + r.Said }

// Ask asks the program of a path, one of the root, about a text that is to stand there. The error
// is [*Refused], or of a question that could not be asked; it is nil of a path that no program of
// the root is asked about.
func Ask(ctx context.Context, root, name, text string) error {
	argv := program(name)
	if argv == nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(root, argv[0])); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dir, err := os.MkdirTemp(filepath.Join(root, "run"), "caisson-check-")
	if err != nil {
		return fmt.Errorf("ask %s about %s: %w", argv[0], name, err)
	}
	defer os.RemoveAll(dir) // a directory in memory, which holds what is written next
	file := filepath.Join(dir, "text")
	if err := os.WriteFile(file, []byte(text), 0o440); err != nil {
		return fmt.Errorf("ask %s about %s: %w", argv[0], name, err)
	}
	within := path.Join("/run", filepath.Base(dir), "text")
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	said := &head{}
	cmd := exec.CommandContext(limited, argv[0], append(argv[1:len(argv):len(argv)], within)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}, said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if root != "/" {
		cmd.SysProcAttr.Chroot = root
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	// What a program says of the text names its file. It may lack something else, as sshd does its
	// keys and its directory before its first start.
	if err == nil || limited.Err() != nil || !strings.Contains(said.String(), within) {
		return ctx.Err()
	}
	words := strings.Join(strings.Fields(strings.ReplaceAll(said.String(), within, name)), " ")
	words = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, words)
	return &Refused{argv[0], fmt.Sprintf("%.300s", words)}
}

// program is the one of a path, nil of one that none reads.
func program(name string) []string {
	for _, c := range checkers {
		for _, pattern := range c.paths {
			if match, err := path.Match(pattern, name); err == nil && match {
				return c.argv
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
