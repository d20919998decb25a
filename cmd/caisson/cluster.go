// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/cluster"
	"github.com/caisson-os/caisson/spec/site/report"
)

// fromCluster says that a site is read from objects of Kubernetes. kubectl(1) asks for them:
// it has the operator's clusters, and logs in to them.
type fromCluster struct {
	on                 bool
	context, namespace string
	kubectl            string
	plan               string
}

const fromClusterHelp = `--from-cluster reads the site from the objects of one namespace, with kubectl, by its current context
unless --context and --namespace say otherwise. Files may be named beside it: the objects have the last word
over them, and keys, locks and the publisher's memory are beside the first, or in the present directory.`

func (f *fromCluster) flags(flags *pflag.FlagSet) {
	flags.BoolVar(&f.on, "from-cluster", false, "read the site from the objects of a namespace")
	flags.StringVar(&f.context, "context", "", "the `NAME` of the cluster in kubectl's configuration")
	flags.StringVar(&f.namespace, "namespace", "", "the `NAME` of the namespace with the objects")
	flags.StringVar(&f.kubectl, "kubectl", "kubectl", "the `PROGRAM` that asks the cluster")
}

func (f *fromCluster) planFlag(flags *pflag.FlagSet) {
	flags.StringVar(&f.plan, "plan", "", "publish from a cluster only what has this `DIGEST`, and do not ask")
}

// args takes files, and does without any where the cluster has the site.
func (f *fromCluster) args(c *cobra.Command, names []string) error {
	if !f.on {
		return cobra.MinimumNArgs(1)(c, names)
	}
	return nil
}

// besideName is the file beside which keys, locks and memory are.
func besideName(names []string) string {
	if len(names) == 0 {
		return "site"
	}
	return names[0]
}

// parse reads a site from files, or from objects.
func (f *fromCluster) parse(ctx context.Context, at time.Time, names []string) (*site.Site, *report.Report, error) {
	if !f.on {
		if f.context != "" || f.namespace != "" {
			return nil, nil, cli.Usage("--from-cluster reads a site from there", "--context and --namespace are for --from-cluster")
		}
		s, found := parseSiteAt(at, names...)
		return s, found, nil
	}
	objects, err := f.objects(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, problems := cluster.Parse(cluster.Day(at), hostFiles{}, filepath.Dir(besideName(names)), names, objects)
	found := &report.Report{}
	for _, p := range problems {
		found.Add(p.Problem)
	}
	return s, found, nil
}

// load is parse for a verb that needs a good site.
func (f *fromCluster) load(ctx context.Context, a *app, names []string) (*site.Site, error) {
	s, found, err := f.parse(ctx, time.Now(), names)
	if err != nil {
		return nil, err
	}
	return a.good(s, found)
}

// asked is how long an API server may take.
const asked = 2 * time.Minute

// objects asks kubectl.
func (f *fromCluster) objects(ctx context.Context) ([]cluster.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, asked)
	defer cancel()
	var kinds []string
	for _, k := range cluster.Kinds() {
		if k.Doc {
			kinds = append(kinds, k.Plural+"."+cluster.Group)
		}
	}
	args := []string{"get", strings.Join(kinds, ","), "-o", "json"}
	if f.context != "" {
		args = append(args, "--context", f.context)
	}
	if f.namespace != "" {
		args = append(args, "--namespace", f.namespace)
	}
	out, err := exec.CommandContext(ctx, f.kubectl, args...).Output()
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed):
		return nil, cli.WithHint(fmt.Errorf("read objects with %s: %s", f.kubectl, strings.TrimSpace(string(failed.Stderr))), "the definitions are in the cluster after 'caisson schema --crd | kubectl apply --server-side -f -'")
	case err != nil:
		return nil, cli.WithHint(fmt.Errorf("read objects: %w", err), "kubectl reads them: --kubectl says where it is")
	}
	return cluster.List(out)
}

// agree shows what would be published from a cluster and asks whether it may be, unless its
// digest was given.
func (f *fromCluster) agree(ctx context.Context, a *app, w preview.Preview, nodes []publish.Node) error {
	if !f.on {
		return nil
	}
	digest, err := preview.Digest(nodes)
	if err != nil {
		return err
	}
	if f.plan != "" && f.plan != digest {
		return cli.WithHint(fmt.Errorf("what would be published has the digest %s now, not %s", digest, f.plan), "somebody changed the objects, the layer moved, or a day has begun: look again with 'caisson plan --from-cluster'")
	}
	if f.plan != "" {
		return nil
	}
	p, err := w.Plan(ctx, nil)
	if err != nil {
		return err
	}
	p.Write(a.err)
	a.say("the plan is %s", digest)
	if w.Publisher.Dry {
		return nil
	}
	if !a.asks() {
		return cli.Usage("--plan "+digest+" publishes it", "what is published from a cluster is confirmed, and nobody is there to ask")
	}
	fmt.Fprint(a.err, "Publish this? [y/N] ")
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err != nil || answer != "y" && answer != "yes" {
		return errors.New("nothing was published")
	}
	return nil
}

// checkForCluster says what of files could not stand in objects.
func checkForCluster(names []string, found *report.Report) {
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // said by the reader of the site
		}
		cluster.Check(&report.Source{Name: name, Data: data}, found)
	}
}
