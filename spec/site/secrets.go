// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/service"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Secret says where the value of a secret comes from; its File is as the fs.FS given to [Parse]
// opens it.
type Secret = document.Secret

// SecretRef is an entry of a Secret of Kubernetes.
type SecretRef = document.SecretRef

// Seal returns the secrets of those names that are sealed to a node, sorted by name. What it
// leaves out, the node does without.
type Seal func(node string, names []string) ([]spec.Secret, error)

// Secrets are those of a site, sorted by name. Their values are not known.
type Secrets []Secret

// Secrets returns the site's secrets.
func (s *Site) Secrets() Secrets { return s.secrets }

// Names returns the names of the secrets, sorted.
func (s Secrets) Names() []string {
	return plain.Each(s, func(one Secret) string { return one.Name })
}

// SealWith has overlays hold secrets from now on; without it none does. It is called before
// anything is compiled.
func (s *Site) SealWith(seal Seal) { s.seal = seal }

// SecretsOf returns the names of the secrets that a node needs, sorted.
func (s *Site) SecretsOf(node string) ([]string, error) {
	o, err := s.Overlay(node, "")
	if err != nil {
		return nil, err
	}
	return s.secrets.NeededBy(o), nil
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

// readSecrets checks where secrets come from.
func readSecrets(r *document.Reader, docs shape.Map[Secret]) (out Secrets) {
	for _, e := range docs {
		r.In(e.Key.S, func() {
			one, v := e.Val, r.Tree.Get("secrets").Get(e.Key.S)
			one.Name, one.At = e.Key.S, e.Key.At
			r.Valid(e.Key.At, rules.Secret(e.Key.S))
			file := r.At(v, "file")
			switch {
			case rules.Given(r.Has(v, "file"), len(one.Command) > 0, one.Ref != nil) != 1:
				r.Errorf(e.Key.At, "required", "write one of file, command and secretRef", "the secret needs exactly one source")
			case one.Ref != nil:
				r.In("secretRef", func() { checkRef(r, v.Get("secretRef"), one.Ref) })
			case r.Has(v, "file"):
				one.File = document.Beside(file, one.File)
				r.In("file", func() { one.Data = readSealed(r, one.File, file) })
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
func checkRef(r *document.Reader, v *tree.Value, ref *SecretRef) {
	r.Refuse(r.Cluster == nil, r.At(v), "no-cluster", "publish it with --from-cluster, or write file or command",
		"the site is not read from a cluster, and has no namespace with Secrets")
	for key, rule := range map[string]error{"name": rules.SecretObject(ref.Name), "key": rules.SecretKey(ref.Key)} {
		if r.Has(v, key) {
			r.In(key, func() { r.Valid(r.At(v, key), rule) })
		}
	}
}

// readSealed returns what a file holds that must be encrypted.
func readSealed(r *document.Reader, name string, at report.Pos) []byte {
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

// Services returns the site's services, and what is locked of them.
func (s *Site) Services() service.Services { return s.services }

// readServices reads the lock of services that were checked.
func readServices(r *document.Reader, list []service.Service) service.Services {
	out := service.Services{List: list, LockFile: path.Join(r.Dir, service.LockName)}
	if len(list) == 0 {
		return out
	}
	data := r.Optional(out.LockFile, service.MaxLock)
	if data == nil {
		return out
	}
	lock, err := service.ParseLock(data)
	if err != nil {
		hint := "'caisson services update' writes it"
		var mend interface{ Hint() string }
		if errors.As(err, &mend) {
			hint = mend.Hint()
		}
		r.Report.Add(report.Problem{File: out.LockFile, Severity: report.Error, Rule: "lock", Message: "read " +
			service.LockName + ": " + err.Error(), Hint: hint})
		return out
	}
	out.Lock = lock
	return out
}

// checkServices reports places of services that something else has, too.
func (s *Site) checkServices(c *shape.Checker) {
	for i := range s.services.List {
		v := &s.services.List[i]
		c.In(v.Name, func() {
			places := v.Places()
			for _, to := range slices.Sorted(maps.Keys(places)) {
				s.checkPlace(c, to, places[to])
			}
			for _, d := range v.Directories {
				c.Refuse(d.To == rules.UnitFile(v.Unit)+".d", places[d.To], "two-owners", "name single files in it",
					"%s holds what caisson adds to the unit", d.To)
			}
		})
	}
}

func (s *Site) checkPlace(c *shape.Checker, to string, at report.Pos) {
	for _, p := range s.parts {
		for _, owned := range slices.Sorted(maps.Keys(maps.Collect(p.Owned()))) {
			if rules.Overlap(to, path.Clean(owned)) {
				c.Errorf(at, "two-owners", "keep one of the two", "%s is in the way of %s, which %s writes", to, owned, p.Name)
				return
			}
		}
		if p.Always(to) {
			c.Errorf(at, "two-owners", "keep one of the two", "%s is written by %s, too", to, p.Name)
			return
		}
	}
	for _, kept := range s.layer.kept {
		if rules.Overlap(to, kept) {
			c.Errorf(at, "two-owners", "name a path that is not kept",
				"%s lies in %s of layer.persist: what is kept there would outlive the service", to, kept)
			return
		}
	}
}

// needPackages adds the packages of services to what a host that has no layer reports
// where it lacks them.
func needPackages(needs []spec.NeedsLayer, list []spec.Service) []spec.NeedsLayer {
	for _, v := range list {
		if v.Package != "" && !slices.ContainsFunc(needs, func(n spec.NeedsLayer) bool { return n.Item == "apt" && n.Key == v.Package }) {
			needs = append(needs, spec.NeedsLayer{Item: "apt", Key: v.Package, To: "installed"})
		}
	}
	return needs
}
