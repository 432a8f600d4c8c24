"""Where the real programs live, and how they get there.

Owns: a cache directory outside the work tree with Apache Kafka's jars, Connect, MirrorMaker and
Streams among them, Flink's with its Kafka connector, and spring-kafka (Maven), a Python environment
for each of confluent-kafka, aiokafka and kafka-python (pip), kafkajs (npm), programs over franz-go,
sarama and kafka-go (go), kcat and libfaketime from the system's packages (apt).
Each install step runs once; a stamp file with the pinned versions says that it is complete.
Must never: write into the repository, or pass over a failed install in silence.
"""

import fcntl
import functools
import hashlib
import os
import pathlib
import shutil
import subprocess

import processes

KAFKA_VERSION = "4.3.1"
CONFLUENT_KAFKA_VERSION = "2.16.1"
AIOKAFKA_VERSION = "0.14.0"
KAFKA_PYTHON_VERSION = "3.0.12"
KAFKAJS_VERSION = "2.2.4"
SLF4J_VERSION = "2.0.17"
SPRING_KAFKA_VERSION = "4.0.0"
# The last with StreamsEosTest in its jar.
EOS_TEST_VERSION = "4.1.1"
FLINK_VERSION = "2.2.1"
FLINK_KAFKA_VERSION = "5.0.0-2.2"
# What Flink and Kafka are made for.
OLD_SLF4J_VERSION = "1.7.36"
FRANZ_GO_VERSION = "1.22.3"
SARAMA_VERSION = "1.61.1"
KAFKA_GO_VERSION = "0.4.51"


def root():
    """The cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "ringlog-peers"


def one_at_a_time(install):
    """Keeps two processes from installing at once; the lock goes with the process."""

    @functools.wraps(install)
    def locked(*arguments):
        root().mkdir(parents=True, exist_ok=True)
        with open(root() / "lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return install(*arguments)

    return locked


def kafka_class_path():
    """Installs Apache Kafka if needed; the JVM class path of its jars."""
    return jars(f"kafka-{KAFKA_VERSION}", POM)


def eos_test_class_path():
    """Installs Kafka Streams with its exactly-once test, if needed; the class path of the jars."""
    return jars(f"streams-{EOS_TEST_VERSION}", EOS_TEST_POM)


def flink_class_path():
    """Installs Apache Flink with its Kafka connector if needed; the JVM class path of its jars."""
    return jars(f"flink-{FLINK_VERSION}", FLINK_POM)


def spring_class_path():
    """Installs spring-kafka if needed; the JVM class path of its jars."""
    return jars(f"spring-kafka-{SPRING_KAFKA_VERSION}", SPRING_POM)


@one_at_a_time
def jars(name, pom):
    """Installs what a list of dependencies asks for; the JVM class path."""
    # Each list of jars has a directory of its own: other checkouts may be running theirs.
    stamp = hashlib.sha256(pom.encode()).hexdigest()
    home = root() / f"{name}-{stamp[:8]}"
    libs = home / "libs"
    if install_needed(home, stamp):
        need("java")
        (home / "pom.xml").write_text(pom)
        command = ["mvn", "-B", "-q", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        step(need("mvn"), command[1:] + [f"-DoutputDirectory={libs}"], cwd=home)
        installed(home, stamp)
    return f"{libs}/*"


@one_at_a_time
def shared_classes(class_path):
    """An archive of what Kafka's tools load from its jars (`java -XX:SharedArchiveFile`), made once:
    a tool then starts in half the time. For class paths that begin with the jars."""
    libs = pathlib.Path(class_path.removesuffix("/*"))
    archive = libs.parent / "tools.jsa"
    if not archive.exists():
        impatient = libs.parent / "impatient.properties"
        impatient.write_text("default.api.timeout.ms=500\nrequest.timeout.ms=500\n")
        lists = [libs.parent / f"tool-{number}.classes" for number in range(len(LOADING))]
        for path, words in zip(lists, LOADING, strict=True):
            # Nobody listens there: what a client is made of is loaded all the same.
            command = ["java", f"-XX:DumpLoadedClassList={path}", "-cp", class_path, *words]
            command += ["--bootstrap-server", NOBODY, "--command-config", impatient]
            processes.run(command, INSTALL_SECONDS, check=False)
        names = dict.fromkeys(line for path in lists for line in path.read_text().splitlines())
        every = libs.parent / "tools.classes"
        every.write_text("".join(f"{name}\n" for name in names))
        new = archive.with_suffix(".new")
        files = [f"-XX:SharedClassListFile={every}", f"-XX:SharedArchiveFile={new}"]
        step("java", ["-Xshare:dump", *files, "-cp", class_path])
        new.rename(archive)
    return archive


@one_at_a_time
def java_classes(class_path, folder="."):
    """Compiles the suite's Java sources, or those of a folder of them, against some jars; the
    directory of the classes. Each state of the sources has a directory of its own: other
    checkouts may be running theirs."""
    programs = pathlib.Path(__file__).resolve().parent / "programs"
    sources = sorted((programs / folder).glob("*.java"))
    newest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    home = root() / f"classes-{newest[:16]}"
    if install_needed(home, newest):
        arguments = ["-nowarn", "-Xlint:none", "-cp", class_path, "-d", str(home)]
        step(need("javac"), arguments + [str(source) for source in sources])
        installed(home, newest)
    return home


def python_with_confluent_kafka():
    """The interpreter of an environment with confluent-kafka."""
    return python_with("python", "confluent-kafka", CONFLUENT_KAFKA_VERSION)


def python_with_aiokafka():
    """The interpreter of an environment with aiokafka."""
    return python_with("python-aiokafka", "aiokafka", AIOKAFKA_VERSION)


def python_with_kafka_python():
    """The interpreter of an environment with kafka-python."""
    return python_with("python-kafka-python", "kafka-python", KAFKA_PYTHON_VERSION)


@one_at_a_time
def python_with(name, distribution, version):
    """Installs a client into an environment of its own; the path of its interpreter."""
    home = root() / name
    python = home / "bin" / "python"
    if install_needed(home, version):
        step(need("python3"), ["-m", "venv", str(home)])
        step(python, ["-m", "pip", "install", "-q", f"{distribution}=={version}"])
        installed(home, version)
    return python


@one_at_a_time
def node_with_kafkajs():
    """Installs kafkajs; the path of node and the directory that holds node_modules."""
    home = root() / "node"
    node = need("node")
    if install_needed(home, KAFKAJS_VERSION):
        words = ["install", "--silent", "--no-fund", "--no-audit", f"kafkajs@{KAFKAJS_VERSION}"]
        step(need("npm"), words, cwd=home)
        installed(home, KAFKAJS_VERSION)
    return node, home


def franz_program(*sources):
    """Builds a Go program over franz-go; the path of the binary."""
    return go_program("franz-go", f"github.com/twmb/franz-go@v{FRANZ_GO_VERSION}", *sources)


def sarama_program(*sources):
    """Builds a Go program over sarama; the path of the binary."""
    return go_program("sarama", f"github.com/IBM/sarama@v{SARAMA_VERSION}", *sources)


def kafka_go_program(source):
    """Builds a Go program over kafka-go; the path of the binary."""
    return go_program("kafka-go", f"github.com/segmentio/kafka-go@v{KAFKA_GO_VERSION}", source)


@one_at_a_time
def go_program(name, module, source, *shared):
    """Builds a Go program over a module, with files that it shares; the path of the binary."""
    texts = b"".join(file.read_bytes() for file in (source, *shared))
    stamp = f"{module} {source.stem} " + hashlib.sha256(texts).hexdigest()
    home = root() / f"{name}-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}"
    if install_needed(home, stamp):
        go = need("go")
        # The newer tool chain that a module may ask for cannot be had everywhere.
        quiet = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod -buildvcs=false"}
        for file in (source, *shared):
            shutil.copy(file, home)
        step(go, ["mod", "init", "program"], cwd=home, env=quiet)
        step(go, ["get", module], cwd=home, env=quiet)
        step(go, ["build", "-o", source.stem, "."], cwd=home, env=quiet)
        installed(home, stamp)
    return home / source.stem


@one_at_a_time
def kcat():
    """Installs kcat from the system's packages if it is missing; its path."""
    if shutil.which("kcat") is None:
        system_package("kcat")
    return need("kcat")


@one_at_a_time
def libfaketime():
    """Installs a library that shifts a process's clock, if it is missing; its path."""
    if not (found := faketime_libraries()):
        system_package("libfaketime")
        found = faketime_libraries()
    if not found:
        raise InstallFailed("libfaketime is not where the system's packages put it")
    return found[0]


def faketime_libraries():
    """Of programs with threads."""
    return sorted(pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


def system_package(name):
    """From the distribution."""
    apt = need("apt-get")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    step(apt, ["update", "-q"], env=quiet)
    step(apt, ["install", "-y", "-q", "--no-install-recommends", name], env=quiet)


class InstallFailed(Exception):
    """A program that the suite needs cannot be had."""


def need(program):
    """The path of a program that has to be on this machine."""
    path = shutil.which(program)
    if path is None:
        raise InstallFailed(f"{program} is not installed")
    return path


def step(program, arguments, cwd=None, env=None):
    """One bounded install command."""
    print(
        f"    installing: {os.path.basename(str(program))} {' '.join(arguments)[:100]}", flush=True
    )
    try:
        processes.run([program] + arguments, INSTALL_SECONDS, cwd=cwd, env=env)
    except (processes.ChildFailed, OSError, subprocess.SubprocessError) as error:
        raise InstallFailed(str(error)) from error


def install_needed(home, stamp):
    """Whether `home` lacks a complete install of `stamp`; empties what is half done."""
    marker = home / ".complete"
    if marker.exists() and marker.read_text() == stamp:
        return False
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    return True


def installed(home, stamp):
    """Marks an install as complete."""
    (home / ".complete").write_text(stamp)


INSTALL_SECONDS = 600
NOBODY = "127.0.0.1:1"
# Main classes and arguments, together most of what clients and tools load.
LOADING = [
    ["org.apache.kafka.tools.BrokerApiVersionsCommand"],
    ["kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics"],
    ["org.apache.kafka.tools.TopicCommand", "--describe"],
    ["org.apache.kafka.tools.ConsoleProducer", "--topic", "t"],
    *[
        ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", "t", "--timeout-ms", "300"]
        + ["--command-property", f"group.protocol={protocol}"]
        for protocol in ("classic", "consumer")
    ],
]
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>kafka-peer</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
      <version>{KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-file</artifactId>
      <version>{KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-mirror</artifactId>
      <version>{KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId>
      <version>{KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId>
      <version>{KAFKA_VERSION}</version><classifier>test</classifier></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId>
      <version>{KAFKA_VERSION}</version><classifier>test</classifier></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-api</artifactId>
      <version>{SLF4J_VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
      <version>{SLF4J_VERSION}</version></dependency>
  </dependencies>
</project>
"""
FLINK_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>flink-peer</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.flink</groupId><artifactId>flink-clients</artifactId>
      <version>{FLINK_VERSION}</version></dependency>
    <dependency><groupId>org.apache.flink</groupId><artifactId>flink-streaming-java</artifactId>
      <version>{FLINK_VERSION}</version></dependency>
    <dependency><groupId>org.apache.flink</groupId><artifactId>flink-connector-base</artifactId>
      <version>{FLINK_VERSION}</version></dependency>
    <dependency><groupId>org.apache.flink</groupId><artifactId>flink-connector-kafka</artifactId>
      <version>{FLINK_KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
      <version>{OLD_SLF4J_VERSION}</version></dependency>
  </dependencies>
</project>
"""
EOS_TEST_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>eos-test-peer</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId>
      <version>{EOS_TEST_VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId>
      <version>{EOS_TEST_VERSION}</version><classifier>test</classifier></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId>
      <version>{EOS_TEST_VERSION}</version><classifier>test</classifier></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
      <version>{OLD_SLF4J_VERSION}</version></dependency>
  </dependencies>
</project>
"""
SPRING_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>spring-peer</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.springframework.kafka</groupId><artifactId>spring-kafka</artifactId>
      <version>{SPRING_KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
      <version>{SLF4J_VERSION}</version></dependency>
  </dependencies>
</project>
"""
