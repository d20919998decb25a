// SPDX-License-Identifier: Apache-2.0

package site

import (
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

var (
	helm    = regexp.MustCompile(`\{\{-?\s*(\.(Values|Release|Chart|Capabilities)\b|(include|tpl|template|required|toYaml)\s)`)
	unfiled = regexp.MustCompile(`^\s*\{\{.*\}\}\s*$`)
)

// words are the keys whose values programs read that have templates of their own.
var words = []string{"args", "argv", "command"}

// warnOfTemplates reports values that a template engine was to fill in: nothing here
// evaluates templates, and a node would be given the braces.
func warnOfTemplates(c *shape.Checker, v *tree.Value, key string) {
	switch {
	case v == nil:
	case v.Kind == tree.Scalar && strings.Contains(v.Text, "{{"):
		if helm.MatchString(v.Text) || unfiled.MatchString(v.Text) && !slices.Contains(words, key) {
			c.Warnf(v.At, "template", "render it first, as 'helm template' does: caisson evaluates no templates", "a template is left in the value")
		}
	default:
		for _, f := range v.Fields {
			c.In(f.Key, func() { warnOfTemplates(c, f.Val, f.Key) })
		}
		for i, e := range v.List {
			if e.Kind != tree.Scalar || strings.Contains(e.Text, "{{") {
				c.In(shape.Nth(i), func() { warnOfTemplates(c, e, key) })
			}
		}
	}
}
