// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"bytes"
	"context"
	"crypto"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/sign"
)

// program is a crypto.Signer whose key another program holds. What it
// answers is verified by oci/sign before it is used.
type program struct {
	argv   []string
	public sign.Verifier
}

// Program asks a program for its public key and returns a signer that asks it for
// signatures. The command is split at blanks and run without a shell: with
// "public" it prints PEM, with "sign" it reads a SHA-256 digest in hex and prints
// the ASN.1 ECDSA signature in base64.
func Program(command string) (crypto.Signer, error) {
	s := &program{argv: strings.Fields(command)}
	if len(s.argv) == 0 {
		return nil, cli.Usage("give the program and its arguments", "the command of a key is empty")
	}
	text, err := s.run("public", nil)
	if err != nil {
		return nil, err
	}
	if s.public, err = sign.ParsePublic(text); err != nil {
		return nil, fmt.Errorf("signer command %s public: %w", s.argv[0], err)
	}
	return s, nil
}

func (s *program) Public() crypto.PublicKey { return s.public }

func (s *program) Sign(_ io.Reader, digest []byte, _ crypto.SignerOpts) ([]byte, error) {
	text, err := s.run("sign", []byte(hex.EncodeToString(digest)+"\n"))
	if err != nil {
		return nil, err
	}
	sig, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("signer command %s sign: the answer is not base64", s.argv[0])
	}
	return sig, nil
}

func (s *program) run(what string, in []byte) ([]byte, error) {
	late := fmt.Errorf("no answer within %v", answerTime)
	ctx, cancel := context.WithTimeoutCause(context.Background(), answerTime, late)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.argv[0], append(s.argv[1:len(s.argv):len(s.argv)], what)...)
	cmd.Stdin, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(in), os.Stderr, time.Second
	out, err := cmd.Output()
	if ctx.Err() != nil {
		err = late
	}
	if err != nil {
		return nil, fmt.Errorf("signer command %s %s: %w", s.argv[0], what, err)
	}
	return out, nil
}

// answerTime is how long a program may take: somebody may have to find a device, and touch
// it. Whoever waits for it keeps other publishers out meanwhile.
var answerTime = 5 * time.Minute
