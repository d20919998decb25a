// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/cli"
)

// fullBelow is how many bytes are too few for anything that caisson writes.
const fullBelow = 4 << 20

// full names, for an error, the directories that have no space left: programs that caisson
// runs say so in words of their own, and not where.
func full(err error, dirs ...string) error {
	for _, dir := range dirs {
		var s unix.Statfs_t
		if err == nil || dir == "" || unix.Statfs(dir, &s) != nil || s.Blocks == 0 {
			continue
		}
		if s.Bavail*uint64(s.Bsize) < fullBelow || s.Files > 0 && s.Ffree == 0 {
			return cli.WithHint(fmt.Errorf("%w; the file system of %s is full", err, dir), "free some space there, or name another directory")
		}
	}
	return err
}

// reached adds a hint to an error of the network, or of a directory that takes nothing, that
// has none.
func reached(err error) error {
	var hinter interface{ Hint() string }
	if err == nil || errors.As(err, &hinter) && hinter.Hint() != "" {
		return err
	}
	var dial *net.OpError
	var name *net.DNSError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return cli.WithHint(err, "the registry serves plain HTTP: add --plain-http if the network between is trusted")
	case errors.As(err, &name):
		return cli.WithHint(err, "is the registry's name right? A directory is written oci:DIR")
	case errors.As(err, &dial) && dial.Op == "dial":
		return cli.WithHint(err, "is the registry running, and is that its address?")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return cli.WithHint(err, "free some space there, or name another directory")
	case errors.Is(err, syscall.EROFS):
		return cli.WithHint(err, "that is mounted read-only: name another directory")
	case errors.Is(err, fs.ErrPermission):
		return cli.WithHint(err, "run it as a user with permission, or name another file or directory")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return cli.WithHint(err, "the answer ended early: try again, and look at the registry and what is before it")
	}
	return err
}
