// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
)

// Writable refuses the name of a file that cannot be written, or holds a private key: a verb asks before it works for
// minutes on what belongs there.
func Writable(flag, name string) error {
	switch info, err := os.Stat(name); {
	case err == nil && info.IsDir():
		return Usage("name a file in it", "%s: %s is a directory", flag, name)
	case err == nil && !info.Mode().IsRegular():
		return nil // a device or a pipe
	case err == nil && info.Size() <= 64<<10: // no key is larger
		text, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return WithHint(fmt.Errorf("%s: %w", flag, err), "what cannot be read may be a key, which is never overwritten: name another file")
		}
		if bytes.Contains(text, []byte("PRIVATE KEY-----")) {
			return Usage("keys are never overwritten: name another file", "%s: %s holds a private key", flag, name)
		}
	}
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, ".caisson.*")
	if errors.Is(err, fs.ErrNotExist) {
		return Usage("'mkdir -p "+dir+"' makes it", "%s: there is no directory %s", flag, dir)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// Absent adds a hint to an error of a file that is not there.
func Absent(err error, hint string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return WithHint(err, hint)
	}
	return err
}

// fullBelow is how many bytes are too few for anything that caisson writes.
const fullBelow = 4 << 20

// Full names, for an error, the directories that have no space left: programs that caisson
// runs say so in words of their own, and not where.
func Full(err error, dirs ...string) error {
	for _, dir := range dirs {
		var s syscall.Statfs_t
		if err == nil || dir == "" || syscall.Statfs(dir, &s) != nil || s.Blocks == 0 {
			continue
		}
		if s.Bavail*uint64(s.Bsize) < fullBelow || s.Files > 0 && s.Ffree == 0 {
			return WithHint(fmt.Errorf("%w; the file system of %s is full", err, dir), "free some space there, or name another directory")
		}
	}
	return err
}

// Reached adds a hint to an error of the network, or of a directory that takes nothing, that
// has none.
func Reached(err error) error {
	var hinter interface{ Hint() string }
	if err == nil || errors.As(err, &hinter) && hinter.Hint() != "" {
		return err
	}
	var dial *net.OpError
	var name *net.DNSError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return WithHint(err, "the registry serves plain HTTP: add --plain-http if the network between is trusted")
	case errors.As(err, &name):
		return WithHint(err, "is the registry's name right? A directory is written oci:DIR")
	case errors.As(err, &dial) && dial.Op == "dial":
		return WithHint(err, "is the registry running, and is that its address?")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return WithHint(err, "free some space there, or name another directory")
	case errors.Is(err, syscall.EROFS):
		return WithHint(err, "that is mounted read-only: name another directory")
	case errors.Is(err, fs.ErrPermission):
		return WithHint(err, "run it as a user with permission, or name another file or directory")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return WithHint(err, "the answer ended early: try again, and look at the registry and what is before it")
	}
	return err
}
