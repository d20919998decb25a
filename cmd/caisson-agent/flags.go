// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"io"
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
)

// flags is a verb's flag set with the flags that all of them have.
type flags struct{ *flag.FlagSet }

func newFlags(a *app, verb string) *flags {
	f := &flags{flag.NewFlagSet(verb, flag.ContinueOnError)}
	f.SetOutput(io.Discard)
	f.Usage = func() {} // parse prints the help
	f.StringVar(&a.format, "o", "text", "output `format`: text or json")
	f.BoolVar(&a.quiet, "q", false, "print results and errors only")
	f.BoolVar(&a.detail, "v", false, "also print the duration")
	return f
}

// parse reads the arguments; a verb takes flags only.
func (f *flags) parse(a *app, args []string) error {
	err := f.FlagSet.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		f.help(a.out)
		return errHelped
	case err != nil:
		return f.wrongFlags(err)
	case a.quiet && a.detail:
		return cli.Usage("", "give either -q or -v")
	case f.NArg() > 0:
		return cli.Usage("see 'caisson-agent "+f.Name()+" --help'", "unexpected argument %q", f.Arg(0))
	case a.format != "text" && a.format != "json":
		return cli.Usage("one of: text, json", "unknown output format %q", a.format)
	}
	return nil
}

// errHelped ends a verb that only printed its help.
var errHelped = errors.New("help was printed")

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }
