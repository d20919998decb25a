// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// policyDoc is a word for each kind, or a map of words by key.
type policyDoc []shape.Entry[kindPolicyDoc]

// kindPolicyDoc is the policy of a kind: of all of it, or of some of its keys.
type kindPolicyDoc []shape.Entry[ruleDoc]

// ruleDoc is a word, or a map that says more.
type ruleDoc struct {
	Policy     shape.Text   `site:"policy,required"`
	OnConflict *spec.Budget `site:"onConflict" doc:"when the agent stops correcting a setting"`
	V          *tree.Value
}

// sysctlPolicyDoc is that of kernel parameters, which can be protected, too.
type sysctlPolicyDoc struct{ kindPolicyDoc }

// others stands for the keys of a kind that are not named.
const others = "*"

// policyFields are the kinds that have a policy.
func policyFields() (out []shape.Field) {
	items := reflect.TypeFor[spec.Items]()
	for i := range items.NumField() {
		switch kind, _, _ := strings.Cut(items.Field(i).Tag.Get("json"), ","); {
		case slices.Contains(spec.Policies(kind), spec.PolicyProtect):
			out = append(out, shape.Field{Name: kind, Type: reflect.TypeFor[sysctlPolicyDoc](),
				Doc: "enforce, report or protect; or one of them by key, with * for all other keys"})
		case spec.Policies(kind) != nil:
			out = append(out, shape.Field{Name: kind, Type: reflect.TypeFor[kindPolicyDoc](),
				Doc: "enforce or report; or one of them by key, with * for all other keys"})
		}
	}
	slices.SortFunc(out, func(a, b shape.Field) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Decode reads the kinds.
func (d *policyDoc) Decode(c *shape.Checker, v *tree.Value) {
	for _, f := range v.Fields {
		if f.Key == "exec" {
			c.Errorf(f.At, "policy", "rerun_policy and the intervals of a script say when it runs",
				"scripts have no policy: what they did cannot be looked at")
			v = v.Without(f.Key)
		}
	}
	given := c.DecodeFields(v, policyFields())
	for _, f := range v.Fields {
		var kind kindPolicyDoc
		switch k := given[f.Key].(type) {
		case *kindPolicyDoc:
			kind = *k
		case *sysctlPolicyDoc:
			kind = k.kindPolicyDoc
		default:
			continue // null, or wrong and said
		}
		*d = append(*d, shape.Entry[kindPolicyDoc]{Key: shape.Text{S: f.Key, At: f.At}, Val: kind})
	}
}

// Schema returns the schema of the kinds.
func (*policyDoc) Schema(g *shape.Generator) any { return g.Fields("policy", policyFields()) }

// Decode reads one kind.
func (k *kindPolicyDoc) Decode(c *shape.Checker, v *tree.Value) {
	if v.Kind == tree.Mapping {
		var m shape.Map[ruleDoc]
		m.Decode(c, v)
		*k = kindPolicyDoc(m)
		return
	}
	var word shape.Text
	if word.Decode(c, v); word.Set() {
		*k = kindPolicyDoc{{Key: shape.Text{S: others, At: v.At}, Val: ruleDoc{Policy: word}}}
	}
}

// Decode reads a word, or what is written out.
func (r *ruleDoc) Decode(c *shape.Checker, v *tree.Value) {
	if v.Kind != tree.Mapping {
		r.Policy.Decode(c, v)
		return
	}
	type written ruleDoc // which has no Decode
	c.Decode(v, (*written)(r))
}

// Schema returns the schema of one kind.
func (*kindPolicyDoc) Schema(g *shape.Generator) any { return wordOrWords(g, spec.EnforceOrReport) }

// Schema returns that of kernel parameters.
func (*sysctlPolicyDoc) Schema(g *shape.Generator) any {
	return wordOrWords(g, spec.Policies("sysctl"))
}

func wordOrWords(g *shape.Generator, policies []spec.Policy) any {
	word := map[string]any{"enum": policies}
	rule := map[string]any{"type": "object", "required": []string{"policy"}, "additionalProperties": false,
		"properties": map[string]any{"policy": word, "onConflict": g.Of(reflect.TypeFor[spec.Budget](), false)}}
	return map[string]any{"anyOf": []any{word, map[string]any{"type": "object",
		"additionalProperties": map[string]any{"anyOf": []any{word, rule}}}}}
}

// Normal gives the keys of policies their one spelling, so that two spellings of a key
// meet when maps are merged.
func Normal(c *shape.Checker, v *tree.Value) *tree.Value {
	agent := v.Get("agent")
	policy := agent.Get("policy")
	if policy == nil || policy.Kind != tree.Mapping {
		return v
	}
	c.Within([]string{"agent", "policy"}, func() {
		for _, f := range policy.Fields {
			if f.Val.Kind != tree.Mapping {
				continue
			}
			c.In(f.Key, func() {
				policy = policy.With(f.Key, c.Rename(f.Val, func(key string) string {
					if key == others {
						return key
					}
					return rules.PolicyName(f.Key, rules.PolicyKey(f.Key, key))
				}))
			})
		}
	})
	return v.With("agent", agent.With("policy", policy))
}

// compileEnforce checks the policies of all kinds.
func compileEnforce(c *shape.Checker, d policyDoc) (out []spec.Enforcement) {
	for _, kind := range d {
		c.In(kind.Key.S, func() { out = append(out, compilePolicy(c, kind)...) })
	}
	slices.SortFunc(out, func(x, y spec.Enforcement) int { return cmp.Or(cmp.Compare(x.Item, y.Item), cmp.Compare(x.Key, y.Key)) })
	return out
}

func compilePolicy(c *shape.Checker, kind shape.Entry[kindPolicyDoc]) (out []spec.Enforcement) {
	for _, e := range kind.Val {
		row := spec.Enforcement{Item: kind.Key.S, Policy: spec.Policy(e.Val.Policy.S)}
		if e.Key.S != others {
			row.Key = rules.PolicyKey(row.Item, e.Key.S)
			c.Refuse(row.Key == "", e.Key.At, "policy-key", "write * for all keys that are not named", "the key is empty")
		}
		if e.Val.Policy.Set() {
			c.ValidFields(e.Key.At, map[string]report.Pos{"policy": e.Val.Policy.At}, rules.Enforcement(row))
		}
		if gives := e.Val.V.Get("onConflict"); e.Val.OnConflict != nil {
			c.Refuse(row.Policy == spec.PolicyReport, c.At(gives), "policy", "policy: enforce sets it again",
				"what is only reported is never set again")
			c.In(e.Key.S, func() { row.Budget = c.Budget(gives, e.Val.OnConflict) })
		}
		out = append(out, row)
	}
	return out
}
