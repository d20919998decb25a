// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/program"
	"github.com/caisson-os/caisson/oci/sign"
)

// commandPrefix begins a source that is a program.
const commandPrefix = "command:"

// Command spells a program that holds a key as a source.
func Command(command string) string { return commandPrefix + command }

// Signer opens a key that signs: what [Open] reads, or a program that holds one
// (command:CMD), as [Program] asks it. Every verb opens the keys of every role by it.
func Signer(source string, p *Passphrase) (crypto.Signer, error) {
	if command, ok := strings.CutPrefix(source, commandPrefix); ok {
		return Program(command)
	}
	key, err := Open(source, p)
	if err != nil {
		return nil, err
	}
	return key, nil
}

// Signers opens keys, in the order of their sources.
func Signers(sources []string, p *Passphrase) (out []crypto.Signer, err error) {
	for _, source := range sources {
		s, err := Signer(source, p)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// PublicOf returns the public half of a key that stays closed: what a program says, or
// NAME.pub beside the file NAME.key. It is nil where neither is known.
func PublicOf(source string) (sign.Verifier, error) {
	if command, ok := strings.CutPrefix(source, commandPrefix); ok {
		s, err := Program(command)
		if err != nil {
			return nil, err
		}
		return sign.NewVerifier(s.Public())
	}
	beside := strings.TrimSuffix(source, ".key") + ".pub"
	text, err := os.ReadFile(beside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read public key: %w", err)
	}
	pub, err := sign.ParsePublic(text)
	return pub, fault.In(err, "read public key %s", beside)
}

// isProgram reports whether a file that was refused as a secret is a program.
func isProgram(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// errProgram says how a program is named that was named as a file.
func errProgram(source string) error {
	return cli.Usage("a program that holds a key is named "+commandPrefix+source, "read key %s: it is a program", source)
}

// holder is a crypto.Signer whose key another program holds. What it
// answers is verified before it is used, that of P-256 by package sign.
type holder struct {
	argv   []string
	public crypto.PublicKey
}

// Program asks a program for its public key and returns a signer that asks it for
// signatures. The command is split at blanks and run without a shell: with
// "public" it prints PEM, with "sign" it reads a SHA-256 digest in hex and prints
// the ASN.1 ECDSA signature in base64.
func Program(command string) (crypto.Signer, error) {
	return holderOf(command, func(text []byte) (crypto.PublicKey, error) { return sign.ParsePublic(text) })
}

func holderOf(command string, parse func(text []byte) (crypto.PublicKey, error)) (crypto.Signer, error) {
	s := &holder{argv: strings.Fields(command)}
	if len(s.argv) == 0 {
		return nil, cli.Usage("give the program and its arguments", "the command of a key is empty")
	}
	text, err := s.run("public", nil)
	if err != nil {
		return nil, err
	}
	if s.public, err = parse(text); err != nil {
		return nil, fmt.Errorf("signer command %s public: %w", s.argv[0], err)
	}
	return s, nil
}

func (s *holder) Public() crypto.PublicKey { return s.public }

func (s *holder) Sign(_ io.Reader, digest []byte, _ crypto.SignerOpts) ([]byte, error) {
	text, err := s.run("sign", []byte(hex.EncodeToString(digest)+"\n"))
	if err != nil {
		return nil, err
	}
	sig, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("signer command %s sign: the answer is not base64", s.argv[0])
	}
	if key, ok := s.public.(*rsa.PublicKey); ok && rsa.VerifyPKCS1v15(key, crypto.SHA256, digest, sig) != nil {
		return nil, fmt.Errorf("signer command %s sign: the answer does not verify with its public key", s.argv[0])
	}
	return sig, nil
}

func (s *holder) run(what string, in []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), answerTime, fmt.Errorf("no answer within %v", answerTime))
	defer cancel()
	out, err := program.Run(ctx, program.Command{Argv: slices.Concat(s.argv, []string{what}), Input: in, Most: maxSource})
	if errors.Is(err, fs.ErrNotExist) { // of the program, or what interprets it, and not of a key's file
		return nil, fmt.Errorf("signer command %s %s: %s", s.argv[0], what, err)
	}
	if err != nil {
		return nil, fmt.Errorf("signer command %s %s: %w", s.argv[0], what, err)
	}
	return out, nil
}

// answerTime is how long a program may take: a person may have to find a device, and touch
// it. The process that waits for it keeps other publishers out meanwhile.
var answerTime = 5 * time.Minute

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
