// SPDX-License-Identifier: Apache-2.0

package keys

import (
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
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
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
	if err != nil {
		return nil, fmt.Errorf("read public key %s: %w", beside, err)
	}
	return pub, nil
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
