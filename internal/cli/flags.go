// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
)

// Flags are those of a verb of a program that links no library for command lines.
type Flags struct {
	*flag.FlagSet
	program string
}

// NewFlags returns those of a verb; what it takes may follow its name.
func NewFlags(program, verb string) *Flags {
	f := &Flags{flag.NewFlagSet(verb, flag.ContinueOnError), program}
	f.SetOutput(io.Discard)
	f.Usage = func() {} // the program prints its help
	return f
}

// Parse reads the arguments. It returns [flag.ErrHelp] where help is asked for.
func (f *Flags) Parse(args []string) error {
	err := f.FlagSet.Parse(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	like := ""
	if name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); unknown {
		err = errors.New("unknown flag --" + name)
		like = plain.Nearest(name, func(yield func(string) bool) {
			f.VisitAll(func(g *flag.Flag) { yield(g.Name) })
		})
	}
	return Usage(question("--"+like, like)+"see '"+f.program+" "+strings.Fields(f.Name())[0]+" --help'", "%w", err)
}

// Describe prints a line for each.
func (f *Flags) Describe(w io.Writer) {
	fmt.Fprint(w, "\nFlags:\n")
	f.VisitAll(func(g *flag.Flag) {
		kind, usage := flag.UnquoteUsage(g)
		name := "--" + g.Name
		if len(g.Name) == 1 {
			name = "-" + g.Name
		}
		if !slices.Contains([]string{"", "false", "0s"}, g.DefValue) {
			usage += " (default " + g.DefValue + ")"
		}
		fmt.Fprintf(w, "  %-20s %s\n", strings.TrimSpace(name+" "+strings.ToUpper(kind)), usage)
	})
}

// UnknownVerb is the error for a verb that is not one of a program's.
func UnknownVerb(program, name string, verbs iter.Seq[string]) error {
	like := plain.Nearest(name, verbs)
	return Usage(question(program+" "+like, like)+"see '"+program+" help'", "unknown verb %q", name)
}

// question asks whether something was meant, where like was found.
func question(meant, like string) string {
	if like == "" {
		return ""
	}
	return "did you mean '" + meant + "'? "
}
