// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"crypto/rand"
	"crypto/sha256"
	"time"

	"filippo.io/age"

	"github.com/caisson-os/caisson/spec/site"
)

// Apart has a site's overlays hold the secrets of one node, sealed to a key that is made for
// it: for a machine that is thrown away. Nothing beside the site is read or written. With
// madeUp nothing is opened either, and values are made up. It returns the key, as the node
// keeps it.
func Apart(s *site.Site, node string, madeUp bool) (x *Sealer, key string, err error) {
	made, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, "", err
	}
	x = &Sealer{site: s, Must: true, Commands: true, Timeout: time.Minute, madeUp: madeUp, values: map[string][]byte{},
		lock: &Lock{rows: map[rowKey]Row{}}, key: &macKey{key: make([]byte, sha256.Size)},
		recipients: &Recipients{Nodes: map[string]Accepted{node: {Node: node, Recipient: made.Recipient().String()}}}}
	rand.Read(x.key.key) // never fails, see crypto/rand
	s.SealWith(x.of)
	return x, made.String() + "\n", nil
}

// makeUp returns a value of a form, or of none, that says what it is.
func makeUp(name string, is form) []byte {
	for _, value := range []string{"made-up-" + name, "!", `{"auths":{"registry.invalid":{"auth":"bWFkZTp1cA=="}}}`} {
		if is == nil || is([]byte(value)) == nil {
			return []byte(value)
		}
	}
	return nil // there is a value of each form, see TestApart
}
