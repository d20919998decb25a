// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/ownfiles"
)

// maxSource is above every key and passphrase.
const maxSource = 64 << 10

// patience is how long a descriptor may say nothing more.
const patience = time.Minute

// Read returns what a source holds: a variable (env:NAME), an open descriptor (fd:N),
// or a file that its owner alone can read.
func Read(source string) ([]byte, error) {
	if name, ok := strings.CutPrefix(source, "env:"); ok {
		return variable(name)
	}
	if number, ok := strings.CutPrefix(source, "fd:"); ok {
		return descriptor(number)
	}
	text, err := ownfiles.ReadLinked(source)
	return text, inPipelines(err)
}

// IsFile reports whether a source is a file, and neither env:NAME, fd:N nor command:CMD.
func IsFile(source string) bool {
	return !slices.ContainsFunc([]string{"env:", "fd:", commandPrefix}, func(p string) bool { return strings.HasPrefix(source, p) })
}

// PairName returns the name of a pair, of which that of either half is one.
func PairName(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, ".key"), ".pub"), ".crt")
}

// Check returns the error that reading a key's source would begin with, and reads
// no content.
func Check(source string) error {
	if command, ok := strings.CutPrefix(source, commandPrefix); ok {
		_, err := Program(command) // a public half is not a secret
		return err
	}
	if name, ok := strings.CutPrefix(source, "env:"); ok {
		_, err := variable(name)
		return err
	}
	if number, ok := strings.CutPrefix(source, "fd:"); ok {
		_, err := handed(number)
		return err
	}
	err := ownfiles.CheckLinked(source)
	if err != nil && isProgram(source) {
		return errProgram(source)
	}
	return inPipelines(err)
}

// inPipelines adds to what is wrong with a file how a pipeline hands over a secret.
func inPipelines(err error) error {
	var secret *ownfiles.SecretError
	if !errors.As(err, &secret) {
		return err
	}
	return cli.WithHint(err, secret.Hint()+"; in a pipeline whose files have other modes: env:NAME reads a variable, fd:N a descriptor")
}

func variable(name string) ([]byte, error) {
	text := os.Getenv(name)
	if text == "" {
		return nil, cli.Usage("", "env:%s: the variable is not set", name)
	}
	if len(text) > maxSource {
		return nil, fmt.Errorf("env:%s: more than %d bytes", name, maxSource)
	}
	// Variables that are masked in a pipeline's log may have no line breaks.
	if raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); err == nil && bytes.HasPrefix(raw, []byte("-----BEGIN ")) {
		return raw, nil
	}
	return []byte(text), nil
}

// handed returns the number of a descriptor that the caller of this program left
// open for it: those of this program itself close on exec.
func handed(number string) (int, error) {
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return 0, cli.Usage("as in --key fd:3 3<operator.key", "fd:%s: not the number of a descriptor", number)
	}
	flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		return 0, cli.Usage("as in --key fd:3 3<operator.key", "fd:%d: no such descriptor is open", n)
	}
	return int(n), nil
}

// descriptor reads a descriptor to its end. It is read once.
func descriptor(number string) ([]byte, error) {
	n, err := handed(number)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(n), "fd:"+number)
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(f, maxSource+1))
		done <- result{text, errors.Join(err, f.Close())}
	}()
	select {
	case r := <-done:
		if r.err == nil && len(r.text) > maxSource {
			r.err = fmt.Errorf("fd:%d: more than %d bytes", n, maxSource)
		}
		return r.text, r.err
	case <-time.After(patience):
		return nil, fmt.Errorf("fd:%d: not at its end after %s", n, patience)
	}
}
