// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/builder/progress"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/site"
)

// app holds what every verb gets: where to print, and how.
type app struct {
	out    io.Writer // results
	err    io.Writer // talk
	format string    // "text" or "json"
	quiet  bool      // results and errors only
	detail bool      // also notes, and how long a verb took
	warned []string  // of a site that is read twice, once is enough
}

func newApp(out, err io.Writer) *app { return &app{out: out, err: err} }

// say prints a line of talk.
func (a *app) say(format string, args ...any) {
	if !a.quiet {
		cli.Sayf(a.err, "caisson", format, args...)
	}
}

// warn prints what is odd about a site, once.
func (a *app) warn(about string) {
	if !slices.Contains(a.warned, about) {
		a.warned = append(a.warned, about)
		a.say("warning: %s", about)
	}
}

// sayDetail prints a line of talk where -v asks for it.
func (a *app) sayDetail(format string, args ...any) {
	if a.detail {
		a.say(format, args...)
	}
}

// json says whether -o json was given.
func (a *app) json() bool { return a.format == "json" }

// show prints the result of a verb: v with -o json, else what text prints.
func (a *app) show(v any, text func()) error {
	if a.json() {
		return cli.JSON(a.out, v)
	}
	text()
	return nil
}

// result is the output of a verb: itself with -o json, else its text.
type result interface{ Write(w io.Writer) }

// print prints a result, unless there was an error.
func (a *app) print(r result, err error) error {
	if err != nil {
		return err
	}
	return a.show(r, func() { r.Write(a.out) })
}

// printTold prints a result, unless there was an error, and says what there is to say of it.
func (a *app) printTold(r interface {
	result
	Tell(say func(format string, args ...any))
}, err error) error {
	if err != nil {
		return err
	}
	return a.show(r, func() {
		r.Write(a.out)
		r.Tell(a.say)
	})
}

// printEach prints the results in v, and v itself with -o json.
func printEach[R result](a *app, v any, results []R) error {
	return a.show(v, func() {
		for _, r := range results {
			r.Write(a.out)
		}
	})
}

// drift is the error of a verb that has shown what somebody should look at.
func drift(found bool) error {
	if found {
		return cli.ErrDrift
	}
	return nil
}

// root is the command line.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "caisson",
		Short:         "Build, sign and publish the system images and settings of a fleet",
		Long:          "Build, sign and publish the system images and settings of a fleet.\n\n" + cli.ExitCodes,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if a.quiet && a.detail {
				return cli.Usage("", "give either --quiet or --verbose")
			}
			if a.format != "text" && a.format != "json" {
				return cli.Usage("one of: text, json", "unknown output format %q", a.format)
			}
			return nil
		},
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return cli.Usage(likeFlag(c, err)+"see '"+c.CommandPath()+" --help'", "%w", err)
	})
	root.SetVersionTemplate("caisson {{.Version}}\n")
	f := root.PersistentFlags()
	f.StringVarP(&a.format, "output", "o", "text", "output format: text or json")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "print results and errors only")
	f.BoolVarP(&a.detail, "verbose", "v", false, "also print notes and duration")
	for _, g := range a.headings() {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, c := range g.verbs {
			c.GroupID = g.title
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID(about)
	root.SetCompletionCommandGroupID(about)
	root.InitDefaultHelpCmd()
	toHelp, _, _ := root.Find([]string{"help"}) // it is there
	toHelp.Args = func(_ *cobra.Command, args []string) error {
		if _, rest, _ := root.Find(args); len(rest) > 0 { // an error leaves a rest, too
			return fmt.Errorf("unknown command %q", rest[0])
		}
		return nil
	}
	a.finish(root)
	return root
}

// about is the heading of the verbs that every program has.
const about = "About this program"

// heading is one of --help and the verbs below it.
type heading struct {
	title string
	verbs []*cobra.Command
}

// headings are the verbs in the order in which a new fleet needs them.
func (a *app) headings() []heading {
	return []heading{
		{"Write a site", []*cobra.Command{a.initCommand(), a.importCommand(), a.validateCommand(), a.explainCommand(),
			a.windowsCommand(), a.operationsCommand(), group("services", a.servicesUpdateCommand(), a.servicesListCommand(),
				a.servicesDiffCommand(), a.servicesFreezeCommand(), a.servicesRollbackCommand(), a.servicesForwardCommand()),
			a.schemaCommand()}},
		{"Build layers, and what boots them", []*cobra.Command{a.buildCommand(), a.lockCommand(), a.inspectCommand(),
			a.netbootCommand(), a.imageCommand(), a.bootstrapCommand(), a.loaderCommand(), a.tryCommand(), a.bisectCommand()}},
		{"Publish", []*cobra.Command{a.planCommand(), a.rehearseCommand(), a.publishCommand(), a.approveCommand(),
			a.verifyCommand(), a.verifyQuoteCommand(), a.diffCommand(), a.historyCommand(), a.refreshCommand(), a.pruneCommand(), a.copyCommand()}},
		{"Hold nodes, and go back", append(a.holdCommands(), a.retireCommand())},
		{"Operate a fleet", []*cobra.Command{
			group("rollout", a.rolloutStartCommand(), a.rolloutRunCommand(), a.rolloutStatusCommand(), a.rolloutVerb(rollout.Pause),
				a.rolloutVerb(rollout.Resume), a.rolloutVerb(rollout.Abort), a.rolloutVerb(rollout.Undo)),
			group("fleet", a.fleetServeCommand(), a.fleetRelayCommand(), a.fleetStatusCommand(), a.fleetDiffCommand(), a.fleetAcceptCommand(),
				a.fleetReplaceCommand(), a.fleetSlotsCommand(), a.fleetAuditCommand(), a.fleetTokenCommand(), a.fleetBackupCommand()),
			a.serveCommand(), a.unknownCommand()}},
		{"Keys and credentials", []*cobra.Command{
			group("keys", a.keysGenerateCommand(), a.keysImportCommand(), a.keysShowCommand(), a.keysPlanCommand(), a.keysRehearseCommand(),
				a.keysRotateCommand(), a.keysRevokeCommand(), a.keysPullCommand(), a.keysEnrollImageCommand(), a.keysRevokeLoaderCommand()),
			group("secrets", a.secretsAcceptCommand(), a.secretsListCommand(), a.secretsForgetCommand()),
			a.rescueCommand(), a.loginCommand(), a.logoutCommand()}},
		{about, []*cobra.Command{a.manCommand(), a.versionCommand()}},
	}
}

// finish adds to a verb and those below it what all of them have.
func (a *app) finish(c *cobra.Command) {
	strict(c)
	complete(c)
	a.timed(c)
	for _, sub := range c.Commands() {
		a.finish(sub)
	}
}

// strict breaks help texts into lines, and makes every wrong call an error of its own exit code, and an unknown
// verb of a group (caisson keys bogus) an error at all.
func strict(c *cobra.Command) {
	c.Long = cli.Wrap(c.Long)
	help := "see '" + c.CommandPath() + " --help'"
	if c.Run == nil && c.RunE == nil {
		c.Args = cobra.NoArgs
		c.SuggestionsMinimumDistance = 2
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	} else {
		help = "usage: " + c.UseLine()
	}
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			if err == nil {
				return nil
			}
			if c.HasSubCommands() && len(args) > 0 {
				if like := c.SuggestionsFor(args[0]); len(like) > 0 {
					return cli.Usage("did you mean '"+c.CommandPath()+" "+like[0]+"'? "+help, "%w", err)
				}
			}
			return cli.Usage(help, "%w", err)
		}
	}
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		return lacks(c, help)
	}
}

// requireFlags has a verb refuse a call without one of these.
func requireFlags(c *cobra.Command, names ...string) {
	for _, name := range names {
		cobra.CheckErr(c.MarkFlagRequired(name))
	}
}

// lacks refuses a call without a flag that the verb must have.
func lacks(c *cobra.Command, help string) (err error) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if _, must := f.Annotations[cobra.BashCompOneRequiredFlag]; must && !f.Changed && err == nil {
			err = cli.Usage(help, "--%s is missing", f.Name)
		}
	})
	return err
}

// likeFlag returns a question for the flag that was mistyped, or "".
func likeFlag(c *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	like := plain.Nearest(unknown.GetSpecifiedName(), func(yield func(string) bool) {
		c.Flags().VisitAll(func(f *pflag.Flag) { yield(f.Name) })
	})
	if like == "" {
		return ""
	}
	return "did you mean --" + like + "? "
}

// timed makes -v say how long each verb took.
func (a *app) timed(c *cobra.Command) {
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			began := time.Now()
			err := run(c, args)
			a.sayDetail("%s took %s", c.Name(), time.Since(began).Round(time.Millisecond))
			return err
		}
	}
}

// progress shows events of a build, or of what is as long. It talks on standard error.
func (a *app) progress() *progress.Progress {
	return progress.Begin(progress.Voice{To: a.err, JSON: a.json(), Quiet: a.quiet, Say: a.say})
}

// console shows what a machine prints, unless talk is not wanted.
func (a *app) console() *cli.Console {
	if a.quiet || a.json() {
		return &cli.Console{}
	}
	return &cli.Console{To: a.err}
}

// quote shows text of a node as talk: none of its lines begins like one of ours.
func (a *app) quote(text string) {
	for line := range strings.Lines(text) {
		if !a.quiet {
			cli.Printf(a.err, "  %s\n", strings.TrimRight(line, "\n"))
		}
	}
}

// help has a text for each verb, from which --help, manual pages and docs/cli are made: a line of
// usage, a line that says what the verb does, then all that there is to say of it, then examples.
//
//go:embed help
var help embed.FS

// shared is a paragraph that several texts have: {signers} stands for help/shared/signers.txt.
var shared = regexp.MustCompile(`\{[a-z]+\}`)

// helpText returns a text, with the paragraphs that it shares with others.
func helpText(name string) string {
	data, err := help.ReadFile("help/" + name + ".txt")
	cobra.CheckErr(err) // of a verb without a text no test passes
	return shared.ReplaceAllStringFunc(strings.TrimSuffix(string(data), "\n"), func(word string) string {
		return helpText("shared/" + strings.Trim(word, "{}"))
	})
}

// verb returns the verb that is typed by these words after the program's name. Its text is in
// help, in a file that has "_" between the words. It takes the arguments of its line of usage.
func verb(words string, run func(*cobra.Command, []string) error) *cobra.Command {
	text, example, _ := strings.Cut(helpText(strings.ReplaceAll(words, " ", "_")), "\n\nExample:\n")
	use, text, _ := strings.Cut(text, "\n")
	short, long, _ := strings.Cut(text, "\n\n")
	_, args, _ := strings.Cut(use, " ")
	return &cobra.Command{Use: use, Short: short, Long: long, Example: example, Args: takes(args), RunE: run}
}

// takes refuses other arguments than a line of usage has, up to a choice in brackets: those in
// square ones may be left out, and one with "…" may come again. Flags are not arguments.
func takes(usage string) cobra.PositionalArgs {
	usage, _, _ = strings.Cut(usage, "(")
	var must []string
	most, again := 0, false
	for words := strings.Fields(usage); len(words) > 0; words = words[1:] {
		if strings.HasPrefix(words[0], "--") || strings.HasPrefix(words[0], "[--") {
			words = words[1:] // and its value
			continue
		}
		if !strings.HasPrefix(words[0], "[") {
			must = append(must, strings.TrimSuffix(words[0], "…"))
		}
		most, again = most+1, again || strings.Contains(words[0], "…")
	}
	if most == 0 {
		return cobra.NoArgs
	}
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(must):
			return fmt.Errorf("%s is missing", must[len(args)])
		case len(args) > most && !again:
			return fmt.Errorf("%q is an argument too many", args[most])
		}
		return nil
	}
}

// group returns a verb that others stand below.
func group(words string, verbs ...*cobra.Command) *cobra.Command {
	c := verb(words, nil)
	c.AddCommand(verbs...)
	return c
}

// written is the output of init and man -o json.
type written struct {
	Dir   string   `json:"dir"`
	Files []string `json:"files"`
}

func (a *app) manCommand() *cobra.Command {
	return verb("man", func(c *cobra.Command, args []string) error {
		if err := os.MkdirAll(args[0], 0o755); err != nil {
			return err
		}
		header := &doc.GenManHeader{Section: "1", Source: "caisson " + version, Manual: "caisson"}
		c.Root().DisableAutoGenTag = true
		if err := doc.GenManTree(c.Root(), header, args[0]); err != nil {
			return fmt.Errorf("write manual pages: %w", err)
		}
		entries, err := os.ReadDir(args[0])
		if err != nil {
			return err
		}
		w := written{Dir: args[0], Files: []string{}}
		for _, e := range entries {
			w.Files = append(w.Files, e.Name())
		}
		return a.show(w, func() { a.say("%d pages in %s", len(w.Files), w.Dir) })
	})
}

// version is set by the Makefile.
var version = "development"

func (a *app) versionCommand() *cobra.Command {
	return verb("version", func(*cobra.Command, []string) error {
		return a.show(map[string]string{"version": version, "go": runtime.Version()}, func() {
			cli.Printf(a.out, "caisson %s (%s)\n", version, runtime.Version())
		})
	})
}

// complete adds what a shell can offer for flags that many verbs have. A flag
// that a verb lacks is left out; nothing that goes wrong is said, because a shell
// has no place to show it.
func complete(c *cobra.Command) {
	offer(c, "output", func(*cobra.Command, []string) []string { return []string{"text", "json"} })
	offer(c, "node", nodeNames)
	offer(c, "layer", func(_ *cobra.Command, args []string) []string { return tags(args, oci.RepoLayer) })
}

func offer(c *cobra.Command, flag string, values func(*cobra.Command, []string) []string) {
	if c.Flag(flag) == nil {
		return
	}
	complete := func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		fits := slices.DeleteFunc(values(c, args), func(s string) bool { return !strings.HasPrefix(s, typed) })
		return fits, cobra.ShellCompDirectiveNoFileComp
	}
	_ = c.RegisterFlagCompletionFunc(flag, complete) // an error says that the flag has one already
}

// nodeNames are those of the site files among the arguments, else of the
// registry that they name.
func nodeNames(_ *cobra.Command, args []string) []string {
	if s, found := site.Parse(hostFiles{}, args...); found.Err() == nil && s != nil {
		return s.Fleet().Names()
	}
	return slices.DeleteFunc(tags(args, oci.RepoNode), func(tag string) bool {
		return strings.HasPrefix(tag, "mac-") || strings.HasPrefix(tag, "uuid-") || strings.HasPrefix(tag, "keep-")
	})
}

// tags lists a repository of the first argument that is a layout or a registry.
func tags(args []string, repo string) []string {
	for _, ref := range args {
		parsed, err := oci.ParseRef(ref)
		if err != nil || !parsed.IsLayout() && !strings.Contains(ref, "/") {
			continue
		}
		r, err := (&access{}).existing(ref)
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		list, err := r.Tags(ctx, repo)
		if cancel(); err == nil {
			return list
		}
	}
	return nil
}
