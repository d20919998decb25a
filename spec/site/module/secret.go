// SPDX-License-Identifier: Apache-2.0

package module

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/machine"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// valueDoc is a value that stands there, or a secret's.
type valueDoc struct {
	Text   shape.Block
	Secret shape.Text
}

// secretValue is a value of a secret, as it is written.
type secretValue struct {
	Secret shape.Text `site:"secret,required" doc:"name of the secret that holds the value"`
	At     report.Pos
}

// Decode reads a scalar or {secret: NAME}.
func (d *valueDoc) Decode(c *shape.Checker, v *tree.Value) {
	if v.Kind != tree.Mapping {
		c.Decode(v, &d.Text)
		return
	}
	d.Secret = shape.Read[secretValue](c, v).Secret
}

// AlsoText says to package shape that a text is the usual form.
func (*valueDoc) AlsoText() {}

// Schema returns the schema of both.
func (*valueDoc) Schema(g *shape.Generator) any {
	return map[string]any{"anyOf": []any{g.Of(reflect.TypeFor[shape.Block](), false), g.Of(reflect.TypeFor[secretValue](), false)}}
}

// secret reports a name that the site has no secret of.
func (c *Checker) secret(name shape.Text) {
	if name.Set() && c.Valid(name.At, rules.Secret(name.S)) {
		c.knowsSecret(name.S, name.At)
	}
}

// secretsIn reports files of secrets that a text names and that no node will have.
func (c *Checker) secretsIn(text shape.Text) {
	for _, name := range spec.SecretsIn(text.S) {
		c.knowsSecret(name, text.At)
	}
}

func (c *Checker) knowsSecret(name string, at report.Pos) {
	if slices.Contains(c.Secrets, name) {
		return
	}
	c.Errorf(at, "unknown-secret", cmp.Or(report.DidYouMean(name, c.Secrets), "secrets: of the site names them"),
		"the site has no secret %.80q", name)
}

// machine compiles the machine settings, whose credentials are secrets of the site.
func (c *Checker) machine(v *tree.Value, f *Fragment) {
	f.Machine = machine.Compile(c.Checker, v)
	own := v.Get("agent").Get("credentials")
	for _, key := range []string{"registry", "report"} {
		if name := own.Get(key); name != nil && name.Kind == tree.Scalar && rules.Secret(name.Text) == nil {
			c.Within([]string{"agent", "credentials", key}, func() { c.knowsSecret(name.Text, name.At) })
		}
	}
}
