// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
)

// Write prints generations for people, a line each.
func Write(w io.Writer, list []Entry) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := 0; i < len(list); i++ {
		e, says := list[i], saysOf(list[i])
		of := e.Generation.String()
		if e.Refused+e.Mark != "" { // there may be as many of them as there are generations
			from := i
			for i+1 < len(list) && saysOf(list[i+1]) == says {
				i++
			}
			if i > from {
				of = list[i].Generation.String() + ".." + of
			}
		}
		if e.Refused != "" {
			cli.Printf(t, "%s\t\t%s\n", of, says[0])
			continue
		}
		cli.Printf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", of, signedBy(e.Keys), e.At.Format(time.RFC3339), says[0], says[1], says[2], says[3])
	}
	_ = t.Flush() // the verb ends with what its output could not take
}

// saysOf is what a line of the history says beside its generation, its keys and its time: why
// nothing is known, or verb, what was published, author and reason.
func saysOf(e Entry) [4]string {
	if e.Refused != "" {
		return [4]string{strings.TrimPrefix(e.Refused, "fleet:gen-"+e.Generation.String()+": ")}
	}
	what := plain.Count(e.Published, "node")
	if e.Node != nil {
		what = e.Node.Overlay
		if what == "" {
			what = "not published"
		}
		what = what[:min(len(what), len(digest.FromHex(""))+12)]
		for _, h := range e.Node.Holds {
			what += ", " + h.Kind
		}
	}
	return [4]string{e.Verb, what, e.Author, strings.Trim(e.Reason+"; "+e.Mark, "; ")}
}

// signedBy names keys: by their files, or by the begin of their ids.
func signedBy(keys []Key) string {
	var names []string
	for _, k := range keys {
		names = append(names, cmp.Or(k.Name, k.ID[:min(len(k.ID), 12)]))
	}
	return strings.Join(names, ",")
}
