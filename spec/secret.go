// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"maps"
	"slices"
	"strings"
)

// SecretDir is where a node has its secrets, opened: a file a secret, in memory that is never
// swapped, for root alone.
const SecretDir = "/run/caisson/secret"

// OwnSecrets is the folder in [SecretDir] of those that the agent itself shows to others, under
// the names of the files that it looks for.
const OwnSecrets = ".own"

// Secret is a value that is sealed to one node, see age(1). The list of an overlay is sorted
// by name.
type Secret struct {
	Name   string `json:"name"`
	To     string `json:"to"`     // the recipient: whose key opens it
	Sealed string `json:"sealed"` // an age file in base64
}

// secretNames are the characters that a secret's name goes on with.
const secretNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

// SecretsIn returns the secrets that a text names by their files, sorted: a unit by
// LoadCredential=, a script by reading one.
func SecretsIn(text string) (names []string) {
	for {
		_, after, found := strings.Cut(text, SecretDir+"/")
		if !found {
			slices.Sort(names)
			return slices.Compact(names)
		}
		text = strings.TrimLeft(after, secretNames)
		if name := strings.TrimRight(after[:len(after)-len(text)], "."); name != "" && name[0] != '.' { // a sentence may end behind it
			names = append(names, name)
		}
	}
}

// SecretNames returns the secrets that a file is of or names, sorted.
func (f File) SecretNames() []string {
	if f.Secret != "" {
		return []string{f.Secret}
	}
	return SecretsIn(f.Content)
}

// SecretNames returns the secrets that a script is given or names, sorted.
func (x Exec) SecretNames() []string {
	names := slices.Concat(SecretsIn(x.Data), SecretsIn(x.Revert), slices.Collect(maps.Values(x.SecretEnv)))
	slices.Sort(names)
	return slices.Compact(names)
}

// SecretNames returns the secrets that a unit names, sorted.
func (u Unit) SecretNames() []string {
	names := SecretsIn(u.Content)
	for _, d := range u.DropIns {
		names = append(names, SecretsIn(d.Content)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// SecretNames returns the secrets that an overlay's items and its agent need, sorted.
func (o *Overlay) SecretNames() []string {
	return namesOf(append(o.Items.needSecrets(), o.credentials()...))
}

// credentials are the agent's own.
func (o *Overlay) credentials() (list []needing) {
	if o.Agent == nil || o.Agent.Credentials == nil {
		return nil
	}
	for _, c := range [][2]string{{"registry", o.Agent.Credentials.Registry}, {"report", o.Agent.Credentials.Report}} {
		if c[1] != "" {
			list = append(list, needing{ItemKey{Item: "credentials", Key: c[0]}, c[1:]})
		}
	}
	return list
}

// SecretNames returns the secrets that the items are of or name, sorted.
func (i Items) SecretNames() []string { return namesOf(i.needSecrets()) }

// needing is an item with the secrets that it needs.
type needing struct {
	ItemKey
	names []string
}

func namesOf(all []needing) (names []string) {
	for _, k := range all {
		names = append(names, k.names...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (i Items) needSecrets() (list []needing) {
	for _, k := range kinds {
		if k.secrets == nil {
			continue
		}
		k.secrets(&i, func(key string, names []string) {
			if len(names) > 0 {
				list = append(list, needing{ItemKey{Item: k.name, Key: key}, names})
			}
		})
	}
	return list
}

// refersToSecrets reports whether a reader that knows no secrets would do something else.
func (i Items) refersToSecrets() bool {
	return len(i.Passwords) > 0 || slices.ContainsFunc(i.Files, func(f File) bool { return f.Secret != "" }) ||
		slices.ContainsFunc(i.Exec, func(x Exec) bool { return len(x.SecretEnv) > 0 })
}

// Keyless returns the items, and credentials of the agent, that a node cannot have as wanted,
// since a secret of theirs is not sealed to it.
func (o *Overlay) Keyless() (keys []ItemKey) {
	for _, k := range append(o.Items.needSecrets(), o.credentials()...) {
		if slices.ContainsFunc(k.names, func(name string) bool { return o.Secret(name) == nil }) {
			keys = append(keys, k.ItemKey)
		}
	}
	return keys
}

// Secret returns a secret of the overlay, nil where it has none of that name.
func (o *Overlay) Secret(name string) *Secret {
	if i := slices.IndexFunc(o.Secrets, func(s Secret) bool { return s.Name == name }); i >= 0 {
		return &o.Secrets[i]
	}
	return nil
}
