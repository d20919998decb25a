// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"crypto"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/program"
	"github.com/caisson-os/caisson/oci/sign"
)

// holder is a crypto.Signer whose key another program holds. What it
// answers is verified by oci/sign before it is used.
type holder struct {
	argv   []string
	public sign.Verifier
}

// Program asks a program for its public key and returns a signer that asks it for
// signatures. The command is split at blanks and run without a shell: with
// "public" it prints PEM, with "sign" it reads a SHA-256 digest in hex and prints
// the ASN.1 ECDSA signature in base64.
func Program(command string) (crypto.Signer, error) {
	s := &holder{argv: strings.Fields(command)}
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
	return sig, nil
}

func (s *holder) run(what string, in []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), answerTime, fmt.Errorf("no answer within %v", answerTime))
	defer cancel()
	out, err := program.Run(ctx, program.Command{Argv: slices.Concat(s.argv, []string{what}), Input: in, Most: maxSource})
	if err != nil {
		return nil, fmt.Errorf("signer command %s %s: %w", s.argv[0], what, err)
	}
	return out, nil
}

// answerTime is how long a program may take: somebody may have to find a device, and touch
// it. Whoever waits for it keeps other publishers out meanwhile.
var answerTime = 5 * time.Minute
