// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/term"
)

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
		if p.text, err = read(p.Source); err != nil {
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
