// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/sign/keyfile"
)

// signers are the flags that say who signs.
type signers struct {
	keys     []string
	commands []string
}

const signerHelp = `Keys: --key FILE is cosign's encrypted PEM, PKCS#8 or SEC 1, ECDSA P-256. The
passphrase comes from CAISSON_PASSPHRASE or COSIGN_PASSWORD, or is asked for on a
terminal. --signer-command CMD keeps a key in hardware or a KMS: "CMD public"
prints the public key as PEM; "CMD sign" reads a SHA-256 digest in hex and
prints the ASN.1 ECDSA signature in base64. CMD is split at blanks and run
without a shell.`

func (s *signers) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&s.keys, "key", nil, "sign with the private key in `FILE`; several for a threshold")
	f.StringArrayVar(&s.commands, "signer-command", nil, "sign with the program `CMD`, for keys in hardware or a KMS")
}

// load returns the signers, at least one.
func (s *signers) load() ([]crypto.Signer, error) {
	var out []crypto.Signer
	for _, name := range s.keys {
		key, err := readKey(name)
		if err != nil {
			return nil, err
		}
		out = append(out, key)
	}
	for _, command := range s.commands {
		signer, err := newCommandSigner(command)
		if err != nil {
			return nil, err
		}
		out = append(out, signer)
	}
	if len(out) == 0 {
		return nil, cli.Usage("caisson keys generate makes keys", "no key to sign with: give --key or --signer-command")
	}
	return out, nil
}

// readKey reads a private key file, which only its owner may be able to read.
func readKey(name string) (*ecdsa.PrivateKey, error) {
	text, err := ownfiles.ReadSecret(name)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	key, err := openKey(name, text)
	if err != nil {
		return nil, fmt.Errorf("read key %s: %w", name, err)
	}
	return key, nil
}

// openKey tries the passphrase of the environment and the empty one, which keys
// of init have, before it asks.
func openKey(name string, text []byte) (*ecdsa.PrivateKey, error) {
	pass, given := passphrase()
	key, err := keyfile.Parse(text, pass)
	if errors.Is(err, keyfile.ErrPassphrase) && given {
		key, err = keyfile.Parse(text, nil)
	}
	if !errors.Is(err, keyfile.ErrPassphrase) {
		return key, err
	}
	if given || !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil, cli.WithHint(err, "set CAISSON_PASSPHRASE")
	}
	if pass, err = ask("passphrase of " + name + ": "); err != nil {
		return nil, err
	}
	return keyfile.Parse(text, pass)
}

func passphrase() ([]byte, bool) {
	for _, name := range []string{"CAISSON_PASSPHRASE", "COSIGN_PASSWORD"} {
		if v, ok := os.LookupEnv(name); ok {
			return []byte(v), true
		}
	}
	return nil, false
}

func ask(prompt string) ([]byte, error) {
	fmt.Fprint(os.Stderr, prompt)
	pass, err := term.ReadPassword(int(os.Stdin.Fd()))
	fmt.Fprintln(os.Stderr)
	return pass, err
}

// commandSigner is a crypto.Signer whose key another program holds. What it
// answers is verified by oci/sign before it is used.
type commandSigner struct {
	argv   []string
	public sign.Verifier
}

func newCommandSigner(command string) (*commandSigner, error) {
	s := &commandSigner{argv: strings.Fields(command)}
	if len(s.argv) == 0 {
		return nil, cli.Usage("give the program and its arguments", "--signer-command is empty")
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

func (s *commandSigner) Public() crypto.PublicKey { return s.public }

func (s *commandSigner) Sign(_ io.Reader, digest []byte, _ crypto.SignerOpts) ([]byte, error) {
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

func (s *commandSigner) run(what string, in []byte) ([]byte, error) {
	cmd := osexec.Command(s.argv[0], append(s.argv[1:len(s.argv):len(s.argv)], what)...)
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("signer command %s %s: %w", s.argv[0], what, err)
	}
	return out, nil
}

// readPublics reads public key files.
func readPublics(names []string) ([]sign.Verifier, error) {
	var texts []string
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read public key: %w", err)
		}
		texts = append(texts, string(text))
	}
	keys, err := sign.ParsePublics(texts)
	if err != nil {
		return nil, fmt.Errorf("read public keys %s: %w", strings.Join(names, ", "), err)
	}
	return keys, nil
}
