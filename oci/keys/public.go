// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"fmt"
	"os"
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/sign"
)

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
	if err != nil {
		return nil, fmt.Errorf("read public keys %s: %w", strings.Join(names, ", "), err)
	}
	return keys, nil
}

// Beside returns the private key files that lie beside public ones, NAME.key beside
// NAME.pub. Those that are not there are left out.
func Beside(publics []string) []string {
	var found []string
	for _, name := range publics {
		private := strings.TrimSuffix(name, ".pub") + ".key"
		if _, err := os.Stat(private); err == nil {
			found = append(found, private)
		}
	}
	return found
}
