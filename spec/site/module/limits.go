// SPDX-License-Identifier: Apache-2.0

package module

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

type limitDoc struct {
	Domain shape.Text `site:"domain,required" doc:"user, @group, *, uid range as in 0:, see limits.conf(5)"`
	Type   shape.Text `site:"type,required" enum:"hard,soft,-"`
	Item   shape.Text `site:"item,required"`
	Value  shape.Text `site:"value,required" doc:"a number, unlimited, infinity or -1"`
	At     report.Pos
}

// limitItems are those of limits.conf(5).
var limitItems = []string{"core", "data", "fsize", "memlock", "nofile", "rss", "stack", "cpu", "nproc", "as", "maxlogins", "maxsyslogins",
	"nonewprivs", "priority", "locks", "sigpending", "msgqueue", "nice", "rtprio", "chroot"}

var idText = regexp.MustCompile(`^[A-Za-z0-9_@%+.-]{1,128}$`)

// checkID says whether an author's key can be part of a file's name.
func (c *Checker) checkID(t shape.Text) bool {
	ok := idText.MatchString(t.S) && t.S[0] != '.'
	if !ok {
		c.Errorf(t.At, "id", "letters, digits and _ - . + @ %", "%q cannot be used as a name", t.S)
	}
	return ok
}

func (c *Checker) limits(v *tree.Value, f *Fragment) {
	var d shape.Map[limitDoc]
	c.Decode(v, &d)
	seen := map[[3]string]shape.Text{}
	for _, e := range d {
		c.In(e.Key.S, func() {
			c.checkID(e.Key)
			l := e.Val
			if l.Item.S == "" || l.Domain.S == "" || l.Value.S == "" || l.Type.S == "" {
				c.emptyTexts(l.Domain, l.Type, l.Item, l.Value)
				return
			}
			if strings.ContainsAny(l.Domain.S, " \t\n#") {
				c.Errorf(l.Domain.At, "text", "", "%q cannot be a domain: it has blanks or #", l.Domain.S)
			}
			if !slices.Contains(limitItems, l.Item.S) {
				c.Errorf(l.Item.At, "enum", report.DidYouMean(l.Item.S, limitItems), "%q is not an item of limits.conf(5)", l.Item.S)
			}
			if _, err := strconv.ParseInt(l.Value.S, 10, 64); err != nil && l.Value.S != "unlimited" && l.Value.S != "infinity" && l.Item.S != "chroot" {
				c.Errorf(l.Value.At, "type", "a number, unlimited, infinity or -1", "%q is not a limit", l.Value.S)
			}
			for _, kind := range limitKinds(l.Type.S) {
				key := [3]string{l.Domain.S, kind, l.Item.S}
				if first, dup := seen[key]; dup {
					c.Warnf(e.Key.At, "duplicate", "", "the same limit is set by %s at %s; the last name in order wins", first.S, first.At)
					break
				}
				seen[key] = e.Key
			}
			f.Items.Limits = append(f.Items.Limits, spec.Limit{ID: e.Key.S, Domain: l.Domain.S, Type: l.Type.S, Item: l.Item.S, Value: l.Value.S})
		})
	}
	slices.SortFunc(f.Items.Limits, func(a, b spec.Limit) int { return strings.Compare(a.ID, b.ID) })
}

func limitKinds(kind string) []string {
	if kind == "-" {
		return []string{"hard", "soft"}
	}
	return []string{kind}
}

// emptyTexts reports texts that are written but empty.
func (c *Checker) emptyTexts(texts ...shape.Text) {
	for _, t := range texts {
		if t.Set() && t.S == "" {
			c.Errorf(t.At, "required", "", "the value is empty")
		}
	}
}
