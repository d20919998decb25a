// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"

	"github.com/caisson-os/caisson/internal/cli"
)

// reached adds a hint to an error of the network or of a full disk that has none.
func reached(err error) error {
	var hinter interface{ Hint() string }
	if err == nil || errors.As(err, &hinter) && hinter.Hint() != "" {
		return err
	}
	var dial *net.OpError
	var name *net.DNSError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return cli.WithHint(err, "the registry speaks plain HTTP: --plain-http, if you trust the way to it")
	case errors.As(err, &name):
		return cli.WithHint(err, "is the registry's name right? A directory is written oci:DIR")
	case errors.As(err, &dial) && dial.Op == "dial":
		return cli.WithHint(err, "is the registry running, and is that its address?")
	case errors.Is(err, syscall.ENOSPC):
		return cli.WithHint(err, "free some space there, or name another directory")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return cli.WithHint(err, "the answer ended early: try again, and look at the registry and what is before it")
	}
	return err
}
