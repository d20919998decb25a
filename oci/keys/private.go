// SPDX-License-Identifier: Apache-2.0

// Package keys opens and writes the keys that an operator names: private key
// files with their passphrases, programs that hold a key, and public key files.
//
// It decides about no signature, which is oci/sign. It reads the environment and may ask on the
// terminal, so only the operator's side imports it, never the agent.
package keys

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/term"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/oci/sign"
)

// Open reads a private key: from a file, which its owner alone may be able to read,
// a variable (env:NAME) or an open descriptor (fd:N). For an encrypted one it tries
// the passphrase, then the empty one, and asks on a terminal only when no passphrase
// is given. A nil passphrase is that of the environment.
func Open(source string, p *Passphrase) (*ecdsa.PrivateKey, error) {
	return openAs(source, p, Parse)
}

// parser reads one kind of key.
type parser[K any] func(text, passphrase []byte) (K, error)

func openAs[K any](source string, p *Passphrase, parse parser[K]) (none K, err error) {
	if strings.HasPrefix(source, commandPrefix) {
		return none, cli.Usage("name the file of a private key", "read key %s: a program gives no private key away", source)
	}
	text, err := Read(source)
	if err != nil && public(source) {
		// Its mode is right for what it is, so that is not what to mend.
		return none, cli.WithHint(fmt.Errorf("read key %s: it is a public key", source), "name the private half, as in keys/operator.key")
	}
	if err != nil && isProgram(source) {
		return none, errProgram(source)
	}
	if err != nil {
		return none, fmt.Errorf("read key: %w", err)
	}
	key, err := decrypt(source, text, p, parse)
	return key, fault.In(err, "read key %s", source)
}

// public reports whether a file that was refused as a secret holds a public key.
func public(name string) bool {
	info, err := os.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > 64<<10 { // no key is as large
		return false
	}
	_, err = Publics([]string{name})
	return err == nil
}

// decrypt tries the passphrase that is given and the empty one, which keys of init
// have, before it asks.
func decrypt[K any](name string, text []byte, p *Passphrase, parse parser[K]) (none K, err error) {
	pass, given, err := p.get()
	if err != nil {
		return none, err
	}
	key, err := parse(text, pass)
	if errors.Is(err, ErrPassphrase) && given {
		key, err = parse(text, nil)
	}
	if !errors.Is(err, ErrPassphrase) {
		return key, err
	}
	if given || !term.IsTerminal(int(os.Stdin.Fd())) {
		return none, cli.WithHint(err, "set CAISSON_PASSPHRASE")
	}
	if pass, err = ask("passphrase of " + name + ": "); err != nil {
		return none, err
	}
	return parse(text, pass)
}

// Passphrase is where the passphrase of encrypted keys comes from: a source as for
// [Open], or, when it is empty, the variables CAISSON_PASSPHRASE or COSIGN_PASSWORD.
// A source is read once.
type Passphrase struct {
	Source string

	text  []byte
	known bool
}

// get returns the passphrase and reports whether there is one: it may be empty.
func (p *Passphrase) get() (text []byte, given bool, err error) {
	if p == nil || p.Source == "" {
		for _, name := range []string{"CAISSON_PASSPHRASE", "COSIGN_PASSWORD"} {
			if v, ok := os.LookupEnv(name); ok {
				return []byte(v), true, nil
			}
		}
		return nil, false, nil
	}
	if !p.known {
		if p.text, err = Read(p.Source); err != nil {
			return nil, false, fmt.Errorf("read passphrase: %w", err)
		}
		p.text, p.known = bytes.TrimRight(p.text, "\r\n"), true
	}
	return p.text, true, nil
}

func ask(prompt string) ([]byte, error) {
	fmt.Fprint(os.Stderr, prompt)
	pass, err := term.ReadPassword(int(os.Stdin.Fd()))
	fmt.Fprintln(os.Stderr)
	return pass, err
}

// WritePair writes name.key and name.pub, both or neither, and overwrites
// nothing. The passphrase encrypts the private half; without one only the file's
// mode protects it. It reports whether a passphrase that is not empty was used.
func WritePair(key *ecdsa.PrivateKey, name string, p *Passphrase) (encrypted bool, err error) {
	return writePair(key, name+".key", name+".pub", sign.VerifierOf(key).PEM(), p)
}

func writePair(key crypto.Signer, private, public string, half []byte, p *Passphrase) (encrypted bool, err error) {
	for _, file := range []string{private, public} {
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			return false, cli.WithHint(fmt.Errorf("write key: %s is there already", file), "keys are never overwritten: give another name")
		}
	}
	pass, _, err := p.get() // none is the empty one
	if err != nil {
		return false, err
	}
	text, err := Marshal(key, pass)
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(private), 0o700); err != nil {
		return false, err
	}
	if err := durable.WriteFile(private, text, 0o600); err != nil {
		return false, fmt.Errorf("write key: %w", err)
	}
	if err := durable.WriteFile(public, half, 0o644); err != nil {
		return false, errors.Join(fmt.Errorf("write key: %w", err), os.Remove(private))
	}
	return len(pass) > 0, nil
}

// Publics reads public key files, one PEM key each. The same key twice is refused.
func Publics(names []string) ([]sign.Verifier, error) {
	var texts []string
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read public key: %w", err)
		}
		if strings.Contains(string(text), "PRIVATE KEY-----") {
			return nil, cli.WithHint(fmt.Errorf("read public key %s: it is a private key", name), "name the public half, as in keys/operator.pub")
		}
		texts = append(texts, string(text))
	}
	keys, err := sign.ParsePublics(texts)
	return keys, fault.In(err, "read public keys %s", strings.Join(names, ", "))
}

// Beside returns the private key files that lie beside public ones, NAME.key beside
// NAME.pub or NAME.crt. Those that are not there are left out.
func Beside(publics []string) []string {
	var found []string
	for _, name := range publics {
		private := strings.TrimSuffix(strings.TrimSuffix(name, ".pub"), ".crt") + ".key"
		if _, err := os.Stat(private); err == nil {
			found = append(found, private)
		}
	}
	return found
}
