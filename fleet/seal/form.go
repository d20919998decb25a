// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules/credential"
	"github.com/caisson-os/caisson/spec/site"
)

// form refuses a value that a node could do nothing with. Its errors do not contain it.
type form func(value []byte) error

// formsOf notes which secrets of an overlay have a form, by name.
func formsOf(o *spec.Overlay, forms map[string]form) {
	for _, p := range o.Items.Passwords {
		forms[p.Secret] = isHash
	}
	if o.Agent == nil || o.Agent.Credentials == nil {
		return
	}
	if name := o.Agent.Credentials.Registry; name != "" {
		forms[name] = isLogin
	}
	if name := o.Agent.Credentials.Report; name != "" && o.Agent.Report != nil && o.Agent.Report.Registry != "" {
		forms[name] = isLogin
	}
}

// isHash refuses a password that nobody could log in with.
func isHash(value []byte) error {
	if problem, _ := credential.HashProblem(strings.TrimSuffix(string(value), "\n")); problem != "" {
		return cli.WithHint(errors.New("it is the password of an account, and its value is not a crypt(5) hash"), "mkpasswd --method=yescrypt prints one")
	}
	return nil
}

// isLogin refuses what does not log in to any registry.
func isLogin(value []byte) error {
	var file struct {
		Auths map[string]struct{} `json:"auths"`
	}
	if json.Unmarshal(value, &file) != nil || len(file.Auths) == 0 {
		return cli.WithHint(errors.New("it logs in to a registry, and its value is not in the form of docker's config.json"), `as in {"auths":{"registry.example.org":{"auth":"BASE64 OF USER:PASSWORD"}}}`)
	}
	return nil
}

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
