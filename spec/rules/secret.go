// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// MaxSecret caps the value of one secret, in bytes: it travels in the node's overlay.
const MaxSecret = 64 << 10

// Secret checks the name of a secret. It becomes the name of a file.
func Secret(name string) error {
	const chars = lower + upper + digits
	if len(name) > 64 || !spelled(name, chars, chars+"_.-") || strings.HasSuffix(name, ".") {
		return invalid("secret", "letters, digits and _ - .; it begins with a letter or a digit and does not end with a dot, at most 64",
			"%.80q is not the name of a secret", name)
	}
	return nil
}

// SecretObject checks the name of a Secret of Kubernetes.
func SecretObject(name string) error {
	for part := range strings.SplitSeq(name, ".") {
		if !label(part) || len(name) > 253 {
			return invalid("secret-object", "lower-case letters, digits, hyphens and dots", "%.80q is not the name of a Secret of Kubernetes", name)
		}
	}
	return nil
}

// SecretKey checks a key of the data of a Secret of Kubernetes.
func SecretKey(name string) error {
	const chars = lower + upper + digits + "_.-"
	if len(name) > 253 || !spelled(name, chars, chars) || name == "." || strings.HasPrefix(name, "..") {
		return invalid("secret-key", "letters, digits and _ - .", "%.80q is not a key of a Secret of Kubernetes", name)
	}
	return nil
}

// Password checks whose password is a secret. Root has none: nobody logs in as root.
func Password(p spec.Password) error {
	var f fields
	f.add("user", User(p.User))
	if p.User == "root" {
		f.add("user", invalid("user-name", "", "root cannot be managed as a user"))
	}
	f.add("secret", Secret(p.Secret))
	return f.err()
}
