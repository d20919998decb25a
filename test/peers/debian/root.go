// SPDX-License-Identifier: Apache-2.0

// Package debian has roots of Debian in which peers run, each in memory and with its own mounts and
// processes, and the packages that they fetch.
package debian

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// cached returns what is kept between runs under a name.
func cached(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "caisson", "peers-"+name), nil
}

// Tar returns a root of a suite with packages, made where there is none of exactly these.
func Tar(suite, name, packages string) (string, error) {
	prefix, err := cached(name)
	if err != nil {
		return "", err
	}
	name = fmt.Sprintf("%s-%.4x.tar", prefix, sha256.Sum256([]byte(suite+" "+packages)))
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return "", err
	}
	made := name + ".new.tar"
	defer os.Remove(made) // it has its name, or is half
	if out, err := exec.Command("mmdebstrap", "--quiet", "--variant=apt", "--include="+packages, suite, made).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mmdebstrap: %w: %s", err, out)
	}
	old, err := filepath.Glob(prefix + "-*.tar")
	for _, o := range old {
		if o != made {
			err = errors.Join(err, os.Remove(o))
		}
	}
	return name, errors.Join(err, os.Rename(made, name))
}

// Unpack makes at a root in memory of at most size, of a tar. What it returns removes it, also while
// something that was killed there is about to end.
func Unpack(tar, at, size string) (remove func() error, err error) {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return nil, err
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "mode=0755,size="+size, "peers", at).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mount: %w: %s", err, out)
	}
	remove = func() error {
		if out, err := exec.Command("umount", "--lazy", at).CombinedOutput(); err != nil {
			return fmt.Errorf("umount: %w: %s", err, out)
		}
		return nil
	}
	if out, err := exec.Command("tar", "--extract", "--numeric-owner", "--file", tar, "--directory", at).CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("tar: %w: %s", err, out), remove())
	}
	return remove, nil
}

// Took is what one command took.
type Took struct {
	Seconds   float64 `json:"seconds"`
	Processor float64 `json:"processorSeconds"`
}

// enter makes $1 the root of a command, which is the rest; it stays the parent of all that the
// command leaves behind, so that what this took is counted.
const enter = `set -e
mount --make-rprivate /
cd "$1"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
command=$2
pivot_root . .
umount -l .
cd /
/bin/sh -c "$command" || exit
exit 0
`

// command is one in the root at a directory.
func command(ctx context.Context, root, text string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "sh", "-c", enter, "sh",
		root, text)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/systemd", "HOME=/root", "LANG=C.UTF-8", "SOURCE_DATE_EPOCH=1767225600",
		"DEBIAN_FRONTEND=noninteractive"}
	return cmd
}

// Start starts a command that serves others; what it returns ends it.
func Start(root, text string) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	cmd := command(ctx, root, text)
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	return func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}, nil
}

// Run runs a command in the root at a directory and returns what it printed and took. Packages
// come from the archive, which may be nil.
func Run(root string, archive *Archive, text string) (out []byte, t Took, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cmd := command(ctx, root, text)
	if archive != nil {
		cmd.Env = append(cmd.Env, "http_proxy="+archive.URL, "no_proxy=127.0.0.1")
	}
	begun := time.Now()
	out, err = cmd.CombinedOutput()
	t.Seconds = time.Since(begun).Seconds()
	if err != nil {
		return out, t, fmt.Errorf("%s: %w: %s", text, err, out[max(0, len(out)-4096):])
	}
	t.Processor = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return out, t, nil
}
