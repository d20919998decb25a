// SPDX-License-Identifier: Apache-2.0

package rules

import "strings"

// MaxSecret caps the value of one secret, in bytes: it travels in the node's overlay.
const MaxSecret = 64 << 10

// Secret checks the name of a secret. It becomes the name of a file.
func Secret(name string) error {
	const chars = lower + upper + digits
	if len(name) > 64 || !spelled(name, chars, chars+"_.-") || strings.HasSuffix(name, ".") {
		return invalid("secret", "letters, digits and _ - .; it begins with a letter or a digit and does not end with a dot, at most 64", "%.80q is not the name of a secret", name)
	}
	return nil
}
