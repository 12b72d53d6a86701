package realkafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// ErrUnavailable is the error of [Open] when this machine has no Java or no jars
// of Kafka. Its text says which, and what to do, in one line.
var ErrUnavailable = errors.New("no Kafka to test against")

// minJava is the oldest Java that the broker runs on.
const minJava = 17

// installation is what it takes to start a broker.
type installation struct {
	java string // the program
	libs string // the folder of the jars
}

// findInstallation looks for Java and the jars. It fetches nothing: a test must
// not download 43 MB behind the back of who runs it.
func findInstallation(ctx context.Context) (installation, error) {
	java, err := findJava(ctx)
	if err != nil {
		return installation{}, unavailable(err, fmt.Sprintf("install Java %d or later and run internal/realkafka/fetch", minJava))
	}
	libs, err := findLibs()
	if err != nil {
		return installation{}, unavailable(err, "run internal/realkafka/fetch")
	}
	return installation{java: java, libs: libs}, nil
}

func unavailable(why error, remedy string) error {
	return fmt.Errorf("%w: %w: %s, or set %s=host:port", ErrUnavailable, why, remedy, envBrokers)
}

func findJava(ctx context.Context) (string, error) {
	name := "java"
	if home := os.Getenv(envJavaHome); home != "" {
		name = filepath.Join(home, "bin", "java")
	}
	java, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("no java: %w", err)
	}
	// Being there is not enough: some systems have a java that only tells how to
	// install one.
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s -version does not work: %w", java, err)
	}
	major, err := javaMajor(out)
	if err != nil {
		return "", fmt.Errorf("%s -version: %w", java, err)
	}
	if major < minJava {
		return "", fmt.Errorf("%s is Java %d", java, major)
	}
	return java, nil
}

// javaVersion matches `openjdk version "17.0.15"` and, as it was before Java 9,
// `java version "1.8.0_402"`.
var javaVersion = regexp.MustCompile(`version "(?:1\.)?(\d+)`)

func javaMajor(out []byte) (int, error) {
	m := javaVersion.FindSubmatch(out)
	if m == nil {
		return 0, errors.New("prints no version")
	}
	return strconv.Atoi(string(m[1]))
}

func findLibs() (string, error) {
	version, err := Version()
	if err != nil {
		return "", err
	}
	libs, err := libsFolder(version)
	if err != nil {
		return "", err
	}
	// fetch makes the folder appear by one rename, so one jar stands for all.
	if _, err := os.Stat(filepath.Join(libs, "kafka_2.13-"+version+".jar")); err != nil {
		return "", fmt.Errorf("the jars of Kafka %s are not in %s", version, libs)
	}
	return libs, nil
}

// libsFolder says where the script fetch puts the jars. It follows that script
// and not [os.UserCacheDir], which differs from it on some systems.
func libsFolder(version string) (string, error) {
	if libs := os.Getenv(envLibs); libs != "" {
		if !filepath.IsAbs(libs) {
			return "", fmt.Errorf("%s=%s is not an absolute path", envLibs, libs)
		}
		return libs, nil
	}
	cache := os.Getenv(envCache)
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no folder for the jars, set %s: %w", envLibs, err)
		}
		cache = filepath.Join(home, ".cache")
	}
	return filepath.Join(cache, "arroyo", "kafka-"+version), nil
}
