// SPDX-License-Identifier: Apache-2.0

package site

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/caisson-os/caisson/spec/site/report"
)

// verbatim are the places whose text goes to a file or a program as it is, or is looked at
// where it is used, and why.
var verbatim = map[string]*regexp.Regexp{
	"the text of a file":     regexp.MustCompile(`^(/conf/overrides/.*)?/conf/(files/.*/content|units/[^/]*/(content|dropIns/.*)|apparmor/profiles/[^/]*|exec/[^/]*/(data|revert))$`),
	"a key of several lines": regexp.MustCompile(`^/conf/apt/repositories/[^/]*/gpgkey$`),
	"an argument":            regexp.MustCompile(`^/conf/exec/[^/]*/(args/\[\]|env/[^/=]*)$|^/health/\[\]/command/\[\]$|^/spec/.*/argv/\[\]$`),
	"of an operation that a template makes, looked at where it is used": regexp.MustCompile(`^/spec/operation/`),
}

// A control character or a mark of direction (all that rules.Hidden finds) means nothing in a name, a path or a value, and is shown on
// terminals: every authored key and value of all valid rows is tried with one.
func TestControlCharacters(t *testing.T) {
	seen, taken := map[string]bool{}, map[string]bool{}
	for _, r := range ruleRows(t) {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(r.text+head), &doc); err != nil || strings.Contains(r.want, " error ") {
			continue // a row of what is wrong
		}
		try := func(path string, n *yaml.Node) {
			for what, c := range map[string]string{"an escape": "\x1b", "a line break": "\n", "a mark of direction": "\u202e"} {
				if seen[path+what] {
					continue
				}
				seen[path+what] = true
				was := *n
				n.Value, n.Style, n.Tag = was.Value+c+"x", yaml.DoubleQuotedStyle, ""
				text, err := yaml.Marshal(&doc)
				*n = was
				if err != nil {
					t.Fatal(err)
				}
				_, said := Parse(files("site.yaml", string(text)), "site.yaml")
				if slices.ContainsFunc(said.Problems, func(p report.Problem) bool { return p.Severity == report.Error }) {
					continue
				}
				may := path == "/conf/modules/blacklist" && c == "\n" // words, by any blanks
				for why, at := range verbatim {
					if at.MatchString(path) {
						may, taken[why] = true, true
					}
				}
				if !may {
					t.Errorf("%s: %s takes %s", r.name, path, what)
				}
			}
		}
		authored("", &doc, try)
	}
	if len(seen) < 300 || len(taken) != len(verbatim) {
		t.Errorf("%d tried, taken as they are: %v", len(seen), taken)
	}
}

// authored calls do with every key and scalar of a document, and where it stands.
func authored(path string, n *yaml.Node, do func(path string, n *yaml.Node)) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			do(path+"/"+n.Content[i].Value+"=key", n.Content[i])
			authored(path+"/"+n.Content[i].Value, n.Content[i+1], do)
		}
	case yaml.ScalarNode:
		do(path, n)
	case yaml.SequenceNode:
		path += "/[]"
		fallthrough
	default:
		for _, c := range n.Content {
			authored(path, c, do)
		}
	}
}
