// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Secret says where the value of a secret comes from, where the site is published. One of File,
// Command and Ref is set.
type Secret struct {
	Name    string
	File    string     `site:"file" doc:"file beside the site that is encrypted with age(1) to whoever publishes"`
	Command []string   `site:"command" as:"[vault, kv, get, -field=value, secret/token]" doc:"program with arguments, no shell, that prints it"`
	Ref     *SecretRef `site:"secretRef" as:"{name: db, key: password}" doc:"a Secret in the site's namespace; the publisher reads its value"`
	Data    []byte     // what the file holds, encrypted with age
}

// SecretRef is an entry of a Secret of Kubernetes, in the namespace whose objects the site is.
type SecretRef struct {
	Name string `site:"name,required" doc:"name of the Secret"`
	Key  string `site:"key,required" doc:"key in the data of the Secret"`
}

// String names the entry as errors do.
func (r SecretRef) String() string { return "Secret " + r.Name + ", key " + r.Key }

// Secrets are those of a site, sorted by name. Their values are not known.
type Secrets []Secret

// Names returns the names of the secrets, sorted.
func (s Secrets) Names() []string {
	return plain.Each(s, func(one Secret) string { return one.Name })
}

// NeededBy returns the names of the secrets that an overlay needs, sorted.
func (s Secrets) NeededBy(o *spec.Overlay) []string {
	if len(s) == 0 {
		return nil
	}
	known := s.Names()
	return slices.DeleteFunc(o.SecretNames(), func(name string) bool { return !slices.Contains(known, name) })
}

// maxSealed caps a file with a secret: the value, encrypted and in text.
const maxSealed = 2*rules.MaxSecret + 4<<10

// What an age file begins with: as it is, and in text.
const (
	ageFile   = "age-encryption.org/v1\n"
	ageArmour = "-----BEGIN AGE ENCRYPTED FILE-----"
)

// ReadSecrets checks where secrets come from.
func (r *Reader) ReadSecrets(docs shape.Map[Secret]) (out Secrets) {
	for _, e := range docs {
		r.In(e.Key.S, func() {
			one, v := e.Val, r.Tree.Get("secrets").Get(e.Key.S)
			one.Name = e.Key.S
			r.Valid(e.Key.At, rules.Secret(e.Key.S))
			file := r.At(v, "file")
			switch {
			case rules.Given(r.Has(v, "file"), len(one.Command) > 0, one.Ref != nil) != 1:
				r.Errorf(e.Key.At, "required", "write one of file, command and secretRef", "the secret needs exactly one source")
			case one.Ref != nil:
				r.In("secretRef", func() { r.checkRef(v.Get("secretRef"), one.Ref) })
			case r.Has(v, "file"):
				one.File = Beside(file, one.File)
				r.In("file", func() { one.Data = r.readSealed(one.File, file) })
			case one.Command[0] == "" || strings.Contains(one.Command[0], " "):
				r.In("command", func() {
					r.Errorf(r.Nth(v.Get("command"), 0), "command", "as in [vault, kv, get, …]",
						"%.80q is not a program: no shell runs it", one.Command[0])
				})
			}
			out = append(out, one)
		})
	}
	slices.SortFunc(out, func(a, b Secret) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// checkRef checks which Secret is meant. Its name becomes an argument of kubectl.
func (r *Reader) checkRef(v *tree.Value, ref *SecretRef) {
	r.Refuse(r.Cluster == nil, r.At(v), "no-cluster", "publish it with --from-cluster, or write file or command",
		"the site is not read from a cluster, and has no namespace with Secrets")
	for key, rule := range map[string]error{"name": rules.SecretObject(ref.Name), "key": rules.SecretKey(ref.Key)} {
		if r.Has(v, key) {
			r.In(key, func() { r.Valid(r.At(v, key), rule) })
		}
	}
}

// readSealed returns what a file holds that must be encrypted.
func (r *Reader) readSealed(name string, at report.Pos) []byte {
	data := r.Named(name, at, maxSealed, "age -r RECIPIENT -o "+name+" writes it")
	if data == nil {
		return nil
	}
	if text := bytes.TrimLeft(data, " \t\r\n"); !bytes.HasPrefix(data, []byte(ageFile)) && !bytes.HasPrefix(text, []byte(ageArmour)) {
		if isSOPS(data) {
			r.Errorf(at, "sops", "write command: [sops, -d, "+name+
				"] in place of file; -d, --extract, '[\"KEY\"]' gives one value of it", "%s is a SOPS file, which sops opens", name)
			return nil
		}
		r.Errorf(at, "not-encrypted", "age -r RECIPIENT -o "+name+
			" encrypts it; what was committed as it is must be changed", "%s is not an age file: a secret is kept encrypted", name)
		return nil
	}
	return data
}

// sopsKey is the key of a YAML document that holds what sops says of it.
var sopsKey = regexp.MustCompile(`(?m)^(sops|"sops"|'sops')[ \t]*:`)

// isSOPS reports whether a file is one of sops, in YAML or JSON. Its metadata may hold age files.
func isSOPS(data []byte) bool {
	var top map[string]json.RawMessage
	if json.Unmarshal(data, &top) == nil {
		return top["sops"] != nil
	}
	return sopsKey.Match(data)
}
