// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
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
